#pragma once

#include "ia/nodes.h"

namespace joinsum::ia {

/// Prints one line per node: inputs with their types, operators as `t0 = local_join[1; 0; matmul](X, W): type`, then
/// outputs (`output Z = t3`, tied ones `output W2 -> W = t5`).
std::string print(const Plan& plan);

/// Reads what `print` writes, and nested expressions over declared inputs. `broadcast`, `shuffle[0, 2]` (the paper's
/// shorthands), `agg`, `join`, `filter` and `map` are understood. A stated type must be the inferred one.
Plan parse(const std::string& text, const relation::LookupTables& tables = {});

/// One operator without its inputs: `local_join[1; 0; matmul]`.
std::string operation_text(const Operation& operation, const PhysicalType& type);

/// Names of a plan's nodes as `print` gives them.
std::unordered_map<const Node*, std::string> node_names(const Plan& plan);

}  // namespace joinsum::ia

#pragma once

#include "tra/nodes.h"

namespace joinsum::tra {

/// Prints one line per node: inputs with their types, operators as `t0 = join[1; 0; matmul](X, W): type`, then outputs
/// (`output Z = t1`, tied ones `output W2 -> W = t5`).
std::string print(const Plan& plan);

/// Reads what `print` writes, and nested expressions over declared inputs. A stated type must be the inferred one.
Plan parse(const std::string& text, const relation::LookupTables& tables = {});

/// The tables that a plan's keys are looked up in, by name: what `parse` needs beside the text.
relation::LookupTables tables_of(const Plan& plan);

/// One operator without its inputs: `join[1; 0; matmul]`.
std::string operation_text(const Operation& operation);

/// Names of a plan's nodes as `print` gives them.
std::unordered_map<const Node*, std::string> node_names(const Plan& plan);

}  // namespace joinsum::tra

#pragma once

#include <map>
#include <string>

#include "einsum/json/graph.h"
#include "optimizer/eindecomp/paper_cost.h"

namespace joinsum::optimizer::eindecomp {

/// Part counts that the plan must have, by label. A pin of an operation names some of its labels. A pin of an output
/// names labels of its operation's result, and so says how the operation leaves it. A pin of an input names all its
/// axes, as 0, 1, ...: the input is then stored so, and readers that want it otherwise pay for a repartition.
struct PartitionPin {
  std::string name;
  std::map<std::string, int64_t> parts;
};

/// The operation with its labels numbered in the order of `all_labels`: that of its partition vectors.
EinsumShape shape_of(const einsum::json::JsonOperation& operation);

/// Raises PlanError for a graph that cannot be right, naming the operation and what to change.
void check(const einsum::json::JsonGraph& graph);

}  // namespace joinsum::optimizer::eindecomp

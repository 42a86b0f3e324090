#pragma once

#include <optional>
#include <utility>

#include "einsum/nodes.h"

namespace joinsum::einsum {

/// An einsum of a graph: what it reads by name, ⊗ and ⊕ by name (`NamedVertex`).
struct GraphOperation {
  std::string name;
  std::vector<std::string> inputs;  ///< names of inputs of the graph, and of earlier operations
  std::vector<Labels> in_labels;
  Labels out_labels;
  Extents extents;  ///< of all its labels
  std::string join = "mul";
  std::optional<std::string> aggregate;  ///< none where the result has all labels
  bool operator==(const GraphOperation&) const = default;
};

/// A graph of einsums as users write it: every value has a name. The JSON form (einsum/json.h) is its text; `plan_of`
/// makes the plan that is inferred, differentiated, lowered and run.
struct Graph {
  std::vector<std::pair<std::string, TensorType>> inputs;
  std::vector<GraphOperation> operations;                    ///< each after those that it reads
  std::vector<std::pair<std::string, std::string>> outputs;  ///< names, and the values that they are
  bool operator==(const Graph&) const = default;
};

/// The labels of an operation whose extents no operand gives, with these.
Extents new_extents(const GraphOperation& operation);

/// The plan of what the outputs need; raises every type error with the JSON path of its place, `at=$.ops[2].join`. An
/// operation Z of argmax or argmin becomes its vertices, and adds an input `Z.positions` (`make_named`). `who` opens
/// messages.
Plan plan_of(const Graph& graph, const std::string& who = "json");

/// A plan with the names that its text gives its nodes. Raises PlanError for an aggregation that has no name.
Graph graph_of(const Plan& plan);

}  // namespace joinsum::einsum

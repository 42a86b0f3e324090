#pragma once

#include <map>
#include <optional>
#include <utility>

#include "einsum/nodes.h"

namespace joinsum::einsum::json {

/// An einsum of a graph: what it reads by name, ⊗ and ⊕ by name (`notation::NamedVertex`).
struct JsonOperation {
  std::string name;
  std::vector<std::string> inputs;  ///< names of inputs of the graph, and of earlier operations
  std::vector<Labels> in_labels;
  Labels out_labels;
  Extents extents;  ///< of all its labels
  std::string join = "mul";
  std::optional<std::string> aggregate;  ///< none where the result has all labels
  bool operator==(const JsonOperation&) const = default;
};

/// The JSON form of a graph (einsum/json/json.h): every value has the user's name, also those that no output needs.
/// `plan_of` makes the plan that is inferred, differentiated, lowered and run.
struct JsonGraph {
  std::vector<std::pair<std::string, TensorType>> inputs;
  std::vector<JsonOperation> operations;                     ///< each after those that it reads
  std::vector<std::pair<std::string, std::string>> outputs;  ///< names, and the values that they are
  bool operator==(const JsonGraph&) const = default;
};

/// The labels of an operation, each once: in the order in which its operands and then its result name them.
Labels all_labels(const JsonOperation& operation);

/// The labels of an operation whose extents no operand gives, with these.
Extents new_extents(const JsonOperation& operation);

/// The plan of what the outputs need; raises every type error with the JSON path of its place, `at=$.ops[2].join`. An
/// operation Z of argmax or argmin becomes its vertices, and adds an input `Z.positions` (`notation::make_named`).
/// `who` opens messages.
Plan plan_of(const JsonGraph& graph, const std::string& who = "json");

/// That plan, and the node of every input and operation by its name.
struct NamedPlan {
  Plan plan;
  std::map<std::string, NodePtr> values;
};
NamedPlan named_plan_of(const JsonGraph& graph, const std::string& who = "json");

/// A plan with the names that its text gives its nodes. Raises PlanError for an aggregation that has no name.
JsonGraph graph_of(const Plan& plan);

}  // namespace joinsum::einsum::json

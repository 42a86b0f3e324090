#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include "base/check.h"

namespace joinsum {

/// An immutable node of a plan: an operation over shared inputs, and the type that was inferred when it was made.
/// Each level creates nodes by its `make()` only, so a node that exists is well typed.
template <class OperationT, class TypeT>
class Node {
 public:
  using Operation = OperationT;
  using Type = TypeT;
  using Pointer = std::shared_ptr<const Node>;

  Node(Operation operation, std::vector<Pointer> inputs, Type type)
      : operation_(std::move(operation)), inputs_(std::move(inputs)), type_(std::move(type)) {}
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  /// Frees a chain of any length without recursion.
  ~Node() {
    std::vector<Pointer> pending = std::move(inputs_);
    while (!pending.empty()) {
      const Pointer node = std::move(pending.back());
      pending.pop_back();
      if (node.use_count() == 1) {
        auto& inputs = const_cast<Node&>(*node).inputs_;
        for (auto& input : inputs) pending.push_back(std::move(input));
        inputs.clear();
      }
    }
  }

  const Operation& operation() const { return operation_; }
  const std::vector<Pointer>& inputs() const { return inputs_; }
  const Pointer& input(size_t index) const { return inputs_[index]; }
  const Type& type() const { return type_; }
  template <class Op>
  const Op* as() const {
    return std::get_if<Op>(&operation_);
  }

 private:
  Operation operation_;
  std::vector<Pointer> inputs_;
  Type type_;
};

/// Types of nodes.
template <class NodeT>
std::vector<typename NodeT::Type> types_of(const std::vector<typename NodeT::Pointer>& nodes) {
  std::vector<typename NodeT::Type> types;
  types.reserve(nodes.size());
  for (const auto& node : nodes) types.push_back(node->type());
  return types;
}

/// A named result; `tied_input`, when set, names the input whose block it may overwrite.
template <class NodeT>
struct PlanOutput {
  std::string name;
  typename NodeT::Pointer node;
  std::optional<std::string> tied_input;
};

/// Nodes below `roots`, each once, inputs before their users; without those of `done` and what only these need.
/// Iterative.
template <class NodeT>
std::vector<typename NodeT::Pointer> topological(const std::vector<typename NodeT::Pointer>& roots,
                                                 std::unordered_set<const NodeT*> done = {}) {
  std::vector<typename NodeT::Pointer> order;
  std::vector<std::pair<typename NodeT::Pointer, size_t>> stack;
  for (const auto& root : roots) {
    if (!done.insert(root.get()).second) continue;
    stack.emplace_back(root, 0);
    while (!stack.empty()) {
      auto& [node, next] = stack.back();
      if (next == node->inputs().size()) {
        order.push_back(node);
        stack.pop_back();
        continue;
      }
      const auto input = node->inputs()[next++];
      if (done.insert(input.get()).second) stack.emplace_back(input, 0);
    }
  }
  return order;
}

/// Named outputs over a shared graph of nodes.
template <class NodeT>
class Plan {
 public:
  using Pointer = typename NodeT::Pointer;
  using Output = PlanOutput<NodeT>;

  Plan() = default;
  explicit Plan(std::vector<Output> outputs) : outputs_(std::move(outputs)) {
    for (const Output& output : outputs_) roots_.push_back(output.node);
    order_ = topological<NodeT>(roots_);
  }

  const std::vector<Output>& outputs() const { return outputs_; }
  /// Every node once, inputs before users.
  const std::vector<Pointer>& order() const { return order_; }

 private:
  std::vector<Output> outputs_;
  std::vector<Pointer> roots_;
  std::vector<Pointer> order_;
};

/// How often the operators and outputs of a plan read each node.
template <class NodeT>
std::unordered_map<const NodeT*, int64_t> use_counts(const Plan<NodeT>& plan) {
  std::unordered_map<const NodeT*, int64_t> counts;
  for (const auto& node : plan.order()) {
    for (const auto& input : node->inputs()) ++counts[input.get()];
  }
  for (const auto& output : plan.outputs()) ++counts[output.node.get()];
  return counts;
}

/// The node of another plan that stands for each node of a plan.
template <class NodeT, class OtherPlan>
using Counterparts = std::unordered_map<const NodeT*, typename OtherPlan::Pointer>;

/// The plan with the same outputs in which `make(node, inputs)` stands for each node, `inputs` being the counterparts
/// of the node's inputs. Adds every counterpart to `counterparts`.
template <class OtherPlan, class NodeT, class Make>
OtherPlan translated(const Plan<NodeT>& plan, Counterparts<NodeT, OtherPlan>& counterparts, const Make& make) {
  for (const auto& node : plan.order()) {
    std::vector<typename OtherPlan::Pointer> inputs;
    for (const auto& input : node->inputs()) inputs.push_back(counterparts.at(input.get()));
    counterparts[node.get()] = make(node, std::move(inputs));
  }
  std::vector<typename OtherPlan::Output> outputs;
  for (const auto& output : plan.outputs()) {
    outputs.push_back({output.name, counterparts.at(output.node.get()), output.tied_input});
  }
  return OtherPlan::make(std::move(outputs));
}

/// The values of a plan's outputs, by name: `compute(node, operands)` gives the value of each node from those of its
/// inputs.
template <class Value, class NodeT, class Compute>
std::map<std::string, Value> evaluated(const Plan<NodeT>& plan, const Compute& compute) {
  std::unordered_map<const NodeT*, Value> values;
  for (const auto& node : plan.order()) {
    std::vector<const Value*> operands;
    for (const auto& input : node->inputs()) operands.push_back(&values.at(input.get()));
    values.emplace(node.get(), compute(*node, operands));
  }
  std::map<std::string, Value> outputs;
  for (const auto& output : plan.outputs()) outputs.emplace(output.name, values.at(output.node.get()));
  return outputs;
}

/// The argument for an interpreter's input of this name; raises where there is none.
template <class Value>
const Value& interpreted_input(const std::string& name, const std::map<std::string, Value>& arguments) {
  const auto found = arguments.find(name);
  JOINSUM_USER_CHECK(found != arguments.end(), "interpret: input is not given: name=", name);
  return found->second;
}

/// Raises unless `name` can stand in a plan's text: letters, digits, `_` and `.`, which does not come first.
void check_plan_name(const std::string& who, const std::string& name);

/// Input nodes of a plan, by first use.
template <class Input, class NodeT>
std::vector<typename NodeT::Pointer> plan_inputs(const Plan<NodeT>& plan) {
  std::vector<typename NodeT::Pointer> inputs;
  for (const auto& node : plan.order()) {
    if (node->template as<Input>() != nullptr) inputs.push_back(node);
  }
  return inputs;
}

/// Checks what every level asks of a plan: at least one output, distinct names, one node per input name, and ties to
/// inputs of the output's type.
template <class Input, class NodeT>
void check_plan(const Plan<NodeT>& plan) {
  JOINSUM_USER_CHECK(!plan.outputs().empty(), "plan: no output");
  std::unordered_map<std::string, typename NodeT::Pointer> inputs;
  for (const auto& node : plan_inputs<Input>(plan)) {
    const std::string& name = node->template as<Input>()->name;
    JOINSUM_USER_CHECK(inputs.emplace(name, node).second, "plan: two inputs of one name: name=", name);
  }
  std::unordered_set<std::string> names;
  std::unordered_set<std::string> tied;
  for (const auto& output : plan.outputs()) {
    check_plan_name("output", output.name);
    JOINSUM_USER_CHECK(names.insert(output.name).second, "plan: two outputs of one name: name=", output.name);
    if (!output.tied_input) continue;
    const auto input = inputs.find(*output.tied_input);
    JOINSUM_USER_CHECK(input != inputs.end(), "plan: output tied to an input that is not there: output=", output.name,
                       ", input=", *output.tied_input);
    JOINSUM_USER_CHECK(tied.insert(*output.tied_input).second,
                       "plan: two outputs tied to one input: input=", *output.tied_input);
    JOINSUM_USER_CHECK(input->second->type() == output.node->type(),
                       "plan: a tied output has its input's type: output=", output.name,
                       ", type=", output.node->type().text(), ", input type=", input->second->type().text());
  }
}

}  // namespace joinsum

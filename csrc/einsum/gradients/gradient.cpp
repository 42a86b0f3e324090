#include "einsum/gradients/gradient.h"

#include <algorithm>
#include <set>

#include "einsum/gradients/labelled.h"
#include "einsum/gradients/simple.h"
#include "einsum/gradients/tied_extremes.h"
#include "einsum/gradients/vertex_gradient.h"
#include "einsum/text.h"
#include "einsum/transforms/binary.h"
#include "kernels/table/table.h"

namespace joinsum::einsum::gradients {
namespace {

bool has_gradient(DType dtype) { return contains(Domain::kFloating, dtype); }

/// Sums what arrives at each node.
class Arrived {
 public:
  void add(const NodePtr& node, const NodePtr& gradient) {
    NodePtr& sum = sums_[node.get()];
    const Labels labels = fresh_labels(gradient->type().extents.size());
    sum = sum == nullptr ? gradient : einsum({sum, labels}, {gradient, labels}, labels, {}, kAdd).node;
  }
  NodePtr at(const Node* node) const {
    const auto found = sums_.find(node);
    return found == sums_.end() ? nullptr : found->second;
  }

 private:
  std::unordered_map<const Node*, NodePtr> sums_;
};

/// Nodes that depend on one of the inputs `of` by floating values: truth values and integers pass no gradient.
std::set<const Node*> depending(const Plan& plan, const std::vector<std::string>& of) {
  std::set<const Node*> out;
  for (const NodePtr& node : plan.order()) {
    const auto* input = node->as<Input>();
    const bool named = input != nullptr && std::find(of.begin(), of.end(), input->name) != of.end();
    const bool above = std::any_of(node->inputs().begin(), node->inputs().end(),
                                   [&](const NodePtr& each) { return out.contains(each.get()); });
    if ((named || above) && has_gradient(node->type().dtype)) out.insert(node.get());
  }
  return out;
}

bool reaches_an_output(const Plan& plan, const std::string& input) {
  const auto above = depending(plan, {input});
  return std::any_of(plan.outputs().begin(), plan.outputs().end(),
                     [&](const auto& output) { return above.contains(output.node.get()); });
}

/// A plan in simple vertices, and what its nodes have become: those that are read, as expressions need not read all.
struct Simplified {
  Plan plan;
  std::unordered_map<const Node*, NodePtr> nodes;
  WholeAggregations aggregations;

  /// The value of a vertex; that of an aggregation of a join comes from one vertex, which does not form the joined
  /// tensor.
  NodePtr value_of(const NodePtr& node) const {
    const auto whole = aggregations.find(node.get());
    return whole == aggregations.end() ? node : whole->second;
  }
};

Simplified simplified(const Plan& plan, const std::map<std::string, transforms::Path>& paths) {
  std::unordered_map<const Node*, NodePtr> halves, simples;
  Simplified out;
  out.plan = simple(transforms::binary(plan, paths, halves, transforms::AggregationStep::kWhereTiesStay), simples,
                    out.aggregations);
  for (const NodePtr& node : plan.order()) {
    const auto read = simples.find(halves.at(node.get()).get());
    if (read != simples.end()) out.nodes[node.get()] = read->second;
  }
  return out;
}

/// The vertex that aggregates `node`, a vertex of the plan that `simple` was made of, or its last step; of `operands`
/// none. The result's own diagonals and broadcasts come after it.
NodePtr end_of(const Node& node, const Simplified& simple, const std::unordered_set<const Node*>& operands) {
  NodePtr end = simple.nodes.at(&node);
  while (!operands.contains(end.get()) && end->inputs().size() == 1 && end->as<Einsum>()->join == kId &&
         end->as<Einsum>()->aggregate == kAdd) {
    end = end->input(0);
  }
  return operands.contains(end.get()) ? nullptr : end;
}

std::unordered_set<const Node*> operands_of(const Node& node, const Simplified& simple) {
  std::unordered_set<const Node*> out;
  for (const NodePtr& input : node.inputs()) {
    const auto read = simple.nodes.find(input.get());
    if (read != simple.nodes.end()) out.insert(read->second.get());
  }
  return out;
}

/// The vertices that vertices of `plan` end with.
std::unordered_set<const Node*> ends_of(const Plan& plan, const Simplified& simple) {
  std::unordered_set<const Node*> out;
  for (const NodePtr& node : plan.order()) {
    if (node->as<Einsum>() == nullptr || !simple.nodes.contains(node.get())) continue;
    const NodePtr end = end_of(*node, simple, operands_of(*node, simple));
    if (end != nullptr) out.insert(end.get());
  }
  return out;
}

bool is_extreme(const Kernel& aggregate) { return kernels::table::row_of(aggregate).facts.idempotent; }

/// Terms through the vertices of `plan` that take an extreme, where one of the nodes in `wanted` is their value.
TiedTerms tied_terms(const Plan& plan, const Simplified& simple, const std::set<const Node*>& wanted) {
  TiedTerms terms(simple.aggregations);
  for (const NodePtr& node : plan.order()) {
    const auto* op = node->as<Einsum>();
    if (op == nullptr || !is_extreme(op->aggregate) || !simple.nodes.contains(node.get())) continue;
    const auto operands = operands_of(*node, simple);
    const NodePtr end = end_of(*node, simple, operands);
    if (end != nullptr && wanted.contains(end.get())) terms.count(end, operands);
  }
  return terms;
}

/// The gradient of what is flat almost everywhere.
NodePtr zeros_like(const NodePtr& input) {
  return mapped({input, fresh_labels(input->type().extents.size())}, Kernel::parse("expression[1, 0]")).node;
}

void check_request(const Plan& plan, const std::vector<std::string>& of) {
  std::set<std::string> names;
  for (const NodePtr& input : plan.inputs()) names.insert(input->as<Input>()->name);
  for (const std::string& name : of) {
    JOINSUM_USER_CHECK(names.contains(name), "gradient: no such input: name=", name);
  }
  for (const NodePtr& input : plan.inputs()) {
    const std::string& name = input->as<Input>()->name;
    const bool requested = std::find(of.begin(), of.end(), name) != of.end();
    JOINSUM_USER_CHECK(!requested || has_gradient(input->type().dtype),
                       "gradient: only floating tensors have one: input=", name, ", type=", input->type().text());
  }
  for (const auto& output : plan.outputs()) {
    JOINSUM_USER_CHECK(!names.contains("d_" + output.name),
                       "gradient: the name of an arriving gradient is taken: name=d_", output.name);
  }
}

}  // namespace

Plan gradient(const Plan& plan, const std::vector<std::string>& of,
              const std::map<std::string, transforms::Path>& paths) {
  check_request(plan, of);
  const Simplified simple = simplified(plan, paths);
  const auto wanted = depending(simple.plan, of);
  const TiedTerms terms = tied_terms(plan, simple, wanted);
  const auto ends = ends_of(plan, simple);
  Arrived arrived;
  for (const auto& output : simple.plan.outputs()) {
    if (!wanted.contains(output.node.get())) continue;
    arrived.add(output.node, make_input("d_" + output.name, output.node->type()));
  }
  for (auto at = simple.plan.order().rbegin(); at != simple.plan.order().rend(); ++at) {
    const NodePtr& node = *at;
    const NodePtr sum = arrived.at(node.get());
    if (sum == nullptr || node->as<Einsum>() == nullptr) continue;
    const Labelled d = terms.shared(*node, {sum, node->as<Einsum>()->result});
    for (size_t i = 0; i < node->inputs().size(); ++i) {
      if (!wanted.contains(node->input(i).get())) continue;
      const bool step = !ends.contains(node.get());
      const auto gradient = VertexGradient(node, simple.value_of(node), terms.passed(*node, i, d), terms, step).of(i);
      if (gradient) arrived.add(node->input(i), gradient->node);
    }
  }
  std::vector<Plan::Output> outputs;
  for (const NodePtr& input : simple.plan.inputs()) {
    const std::string& name = input->as<Input>()->name;
    if (std::find(of.begin(), of.end(), name) == of.end() || !reaches_an_output(simple.plan, name)) continue;
    const NodePtr d = arrived.at(input.get());
    outputs.push_back({"d_" + name, d == nullptr ? zeros_like(input) : d, std::nullopt});
  }
  JOINSUM_USER_CHECK(!outputs.empty(), "gradient: no output depends on these inputs: inputs=", of);
  return Plan::make(std::move(outputs));
}

std::vector<bool> differentiable_outputs(const Plan& plan, const std::vector<std::string>& of) {
  const Simplified simple = simplified(plan, {});
  const auto reached = depending(simple.plan, of);
  std::vector<bool> out;
  for (const auto& output : simple.plan.outputs()) out.push_back(reached.contains(output.node.get()));
  return out;
}

}  // namespace joinsum::einsum::gradients

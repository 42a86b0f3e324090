#include "einsum/gradient.h"

#include <algorithm>
#include <set>

#include "einsum/binary.h"
#include "einsum/labelled.h"
#include "einsum/simple.h"
#include "einsum/text.h"
#include "einsum/tied_ways.h"
#include "kernels/expression.h"
#include "kernels/table.h"

namespace joinsum::einsum {
namespace {

bool has_gradient(DType dtype) {
  return is_complex(dtype) || dtype == DType::kFloat16 || dtype == DType::kBFloat16 || dtype == DType::kFloat32 ||
         dtype == DType::kFloat64;
}

Kernel kernel(const std::string& text) { return Kernel::parse(text); }

/// Derivative of a map at x, with value z; nothing where it is 0 almost everywhere.
std::optional<Labelled> derivative(const Kernel& map, const Labelled& x, const Labelled& z) {
  const std::string& name = map.name;
  if (name == "square") return mapped(conjugate(x), kernel("scale[2]"));
  if (name == "exp") return conjugate(z);
  if (name == "log") return mapped(conjugate(x), kernel("reciprocal"));
  if (name == "sqrt") return mapped(mapped(conjugate(z), kernel("reciprocal")), kernel("scale[0.5]"));
  if (name == "reciprocal") return mapped(conjugate(z), kernel("square | negate"));
  if (name == "abs") return mapped(x, kernel("sign"));
  if (name == "relu") return mapped(x, kernel("relu_derivative"));
  if (name == "softplus") return mapped(x, kernel("sigmoid"));
  if (name == "sigmoid") return einsum(z, mapped(z, kernel("square")), z.labels, {}, kernel("sub"));
  const std::set<std::string> flat{"detach", "sign", "is_zero", "relu_derivative"};
  JOINSUM_USER_CHECK(flat.contains(name), "gradient: a kernel without a gradient: kernel=", map.text());
  return std::nullopt;
}

/// Gradients of one simple vertex for its operands.
class Vertex {
 public:
  /// `value` is the node's; `arrived` is for each of its tied ways, where it is a step of an extreme. `step` says that
  /// another vertex folds it further.
  Vertex(const NodePtr& node, const NodePtr& value, Labelled arrived, const TiedWays& ways, bool step)
      : node_(*node),
        op_(*node->as<Einsum>()),
        z_{value, op_.result},
        d_(std::move(arrived)),
        ways_(ways),
        step_(step) {
    for (size_t i = 0; i < node->inputs().size(); ++i) operands_.push_back({node->input(i), op_.operands[i]});
    extents_ = extents_of(op_, types_of<Node>(node->inputs()));
  }

  /// For operand `i`; nothing where it is 0 almost everywhere.
  std::optional<Labelled> of(size_t i) const {
    if (kernels::is_expression(op_.join)) return of_expression(i);
    if (operands_.size() == 1) return of_unary();
    return of_binary(i);
  }

 private:
  std::optional<Labelled> of_unary() const {
    const Labelled& x = operands_[0];
    if (op_.join != kId) {
      if (op_.join.name == "negate" || op_.join.name == "scale") return mapped(d_, op_.join);
      if (op_.join.name == "conjugate") return mapped(d_, op_.join);
      if (op_.join.name == "cast") return mapped(d_, Kernel{"cast", {name_of(x.node->type().dtype)}});
      if (op_.join.name == "tanh") {
        const Labelled square = mapped(conjugate(z_), kernel("square"));
        return einsum(d_, einsum(d_, square, x.labels, extents_, kMul), x.labels, extents_, kernel("sub"));
      }
      const auto slope = derivative(op_.join, x, z_);
      if (!slope) return std::nullopt;
      return einsum(d_, *slope, x.labels, extents_, kMul);
    }
    const bool folds = !without(x.labels, op_.result).empty();
    // Transposes of each other: diagonals and broadcasts, sums and broadcasts.
    if (!folds || op_.aggregate == kAdd) return einsum(d_, x.labels, extents_);
    if (op_.aggregate.name == "max" || op_.aggregate.name == "min") {
      return einsum(d_, ways_.ties(node_), x.labels, extents_, kMul);
    }
    if (op_.aggregate.name == "mul") return of_product();
    JOINSUM_USER_CHECK(op_.aggregate.name == "logaddexp",
                       "gradient: an aggregation without a gradient: aggregate=", op_.aggregate.text());
    return of_logarithm();
  }

  /// d exp(x - z). Where a later step folds z further, an infinite one leaves its elements the gradients that they have
  /// in the whole fold: what arrives is not a number only where that is infinite, and concerns the equal elements
  /// alone.
  Labelled of_logarithm() const {
    const Labelled& x = operands_[0];
    if (!step_) {
      const Labelled share = mapped(einsum(x, z_, x.labels, extents_, kernel("sub")), kernel("exp"));
      return einsum(d_, share, x.labels, extents_, kMul);
    }
    const Labelled share = einsum(x, z_, x.labels, extents_, kernel("expression[2, where(x0-x1==x0-x1,exp(x0-x1),1)]"));
    return einsum(d_, share, x.labels, extents_, kernel("expression[2, where(x1==0,0,x0*x1)]"));
  }

  /// The product of the other elements: zeros and infinities are counted apart from the product of the rest. A single
  /// zero among the others stands there itself, so that the gradient of the gradient is that of the product, too.
  Labelled of_product() const {
    const Labelled x = conjugate(operands_[0]);
    const bool real = !is_complex(x.node->type().dtype);
    const Labelled zero = mapped(x, kernel("is_zero"));
    const Labelled filled =
        real ? mapped(x, kernel("expression[1, where(x0==0,1,where(x0==inf,1,where(x0==-inf,-1,x0)))]"))
             : einsum(x, zero, x.labels, extents_, kAdd);
    const Labelled small =
        real ? mapped(x, kernel("expression[1, where(x0==0,x0,0)]")) : einsum(x, zero, x.labels, extents_, kMul);
    const Labelled zeros = others(zero);
    const Labelled single =
        einsum(mapped(zeros, kernel("expression[1, x0-1] | is_zero")), others(small), x.labels, extents_, kMul);
    const Labelled product = einsum(filled, z_.labels, extents_, kId, kMul);
    Labelled slope = einsum(product, filled, x.labels, extents_, kernel("div"));
    slope = einsum(slope, einsum(mapped(zeros, kernel("is_zero")), single, x.labels, extents_, kAdd), x.labels,
                   extents_, kMul);
    if (real) {
      const Labelled infinite = mapped(x, kernel("expression[1, where(x0==inf,1,where(x0==-inf,1,0))]"));
      const Labelled factor = mapped(others(infinite), kernel("expression[1, where(x0==0,1,inf)]"));
      slope = einsum(slope, factor, x.labels, extents_, kMul);
    }
    return einsum(d_, slope, x.labels, extents_, kMul);
  }

  /// The sum of the other elements that are folded with each.
  Labelled others(const Labelled& x) const {
    return einsum(einsum(x, z_.labels, extents_), x, x.labels, extents_, kernel("sub"));
  }

  /// Σ d ∂f/∂xᵢ, an expression of the operands and of what arrives.
  std::optional<Labelled> of_expression(size_t i) const {
    using kernels::Expression;
    const auto count = static_cast<int64_t>(operands_.size());
    const Expression slope = kernels::expression_of(op_.join).derivative(static_cast<int64_t>(i));
    if (slope.is(0)) return std::nullopt;
    const Labels& result = operands_[i].labels;
    Einsum op{{}, result, kId, kAdd, {}};
    std::vector<NodePtr> inputs;
    for (const Labelled& each : operands_) {
      inputs.push_back(conjugate(each).node);
      op.operands.push_back(each.labels);
    }
    inputs.push_back(d_.node);
    op.operands.push_back(d_.labels);
    const Expression arrived = Expression::of_operand(count);
    op.join = kernels::expression_kernel(Expression::of(kernels::Function::kMultiply, {arrived, slope}), count + 1);
    return Labelled{make(std::move(op), std::move(inputs)), result};
  }

  std::optional<Labelled> of_binary(size_t i) const {
    const Labelled& x = operands_[i];
    const Labelled& y = operands_[1 - i];
    const std::string& name = op_.join.name;
    const bool left = i == 0;
    if (name == "mul") return einsum(d_, conjugate(y), x.labels, extents_, kMul);
    if (name == "add") return passed(i, 1);
    if (name == "sub") return passed(i, left ? 1 : -1);
    if (name == "div") return left ? einsum(d_, conjugate(y), x.labels, extents_, kernel("div")) : of_divisor();
    if (name == "squared_difference") return of_square(i);
    if (name == "max" || name == "min") return sloped(i, joined("above", (name == "max") == left));
    if (name == "abs_difference") return sloped(i, mapped(joined("sub", left), kernel("sign")));
    if (name == "logaddexp") return sloped(i, mapped(joined("sub", left), kernel("sigmoid")));
    JOINSUM_USER_CHECK(name == "equal" || name == "above",
                       "gradient: a kernel without a gradient: kernel=", op_.join.text());
    return std::nullopt;
  }

  /// `join` of the operands, or of them exchanged, with all labels.
  Labelled joined(const std::string& join, bool in_order) const {
    const Labelled& first = operands_[in_order ? 0 : 1];
    const Labelled& second = operands_[in_order ? 1 : 0];
    return einsum(first, second, labels_of({op_.operands[0], op_.operands[1]}), extents_, kernel(join));
  }

  Labelled sloped(size_t i, const Labelled& slope) const {
    return einsum(d_, slope, operands_[i].labels, extents_, kMul);
  }

  /// Labels of `x` and of what arrives; and how often an element of them counts, as labels of the other operand that
  /// are summed do not show.
  std::pair<Labels, int64_t> seen(const Labelled& x) const {
    int64_t times = 1;
    for (const std::string& label : without(without(labels_of(op_.operands), x.labels), d_.labels)) {
      times *= extents_.at(label);
    }
    return {common(d_.labels, x.labels), times};
  }

  /// What arrives, summed for operand `i`, times `factor`.
  Labelled passed(size_t i, int64_t factor) const {
    const Labelled& x = operands_[i];
    const auto [labels, times] = seen(x);
    Labelled sum = einsum(d_, labels, extents_);
    if (times * factor != 1) sum = mapped(sum, Kernel{"scale", {times * factor}});
    return einsum(sum, x.labels, extents_);
  }

  /// -Σ d x / y²
  Labelled of_divisor() const {
    const Labelled& x = operands_[0];
    const Labelled y = conjugate(operands_[1]);
    const Labels labels = common(y.labels, labels_of({d_.labels, x.labels}));
    const Labelled sum = einsum(d_, conjugate(x), labels, extents_, kMul);
    const Labelled once = einsum(sum, y, y.labels, extents_, kernel("div"));
    return mapped(einsum(once, y, y.labels, extents_, kernel("div")), kernel("negate"));
  }

  /// 2 Σ d (x - y). Where that is summed, the joined tensor is not formed: x Σ d - Σ d y.
  Labelled of_square(size_t i) const {
    const Labelled x = operands_[i];
    const Labelled y = operands_[1 - i];
    const Labels all = labels_of({x.labels, y.labels});
    if (without(all, d_.labels).empty()) {
      const Labelled difference = conjugate(einsum(x, y, all, extents_, kernel("sub")));
      return mapped(einsum(d_, difference, x.labels, extents_, kMul), kernel("scale[2]"));
    }
    const auto [labels, times] = seen(x);
    Labelled sum = einsum(d_, labels, extents_);
    if (times != 1) sum = mapped(sum, Kernel{"scale", {times}});
    const Labelled own = einsum(sum, conjugate(x), x.labels, extents_, kMul);
    const Labelled other = einsum(d_, conjugate(y), x.labels, extents_, kMul);
    return mapped(einsum(own, other, x.labels, extents_, kernel("sub")), kernel("scale[2]"));
  }

  const Node& node_;
  const Einsum& op_;
  Labelled z_;
  Labelled d_;
  const TiedWays& ways_;
  const bool step_;
  std::vector<Labelled> operands_;
  Extents extents_;
};

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

/// Nodes that lie on a way of floating values from one of the inputs `of`: truth values and integers pass no gradient.
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
  WholeFolds folds;

  /// The value of a vertex: that of a fold of a join from one vertex, for which the joined tensor is not formed.
  NodePtr value_of(const NodePtr& node) const {
    const auto whole = folds.find(node.get());
    return whole == folds.end() ? node : whole->second;
  }
};

Simplified simplified(const Plan& plan, const std::map<std::string, Path>& paths) {
  std::unordered_map<const Node*, NodePtr> halves, simples;
  Simplified out;
  out.plan = simple(binary(plan, paths, halves, Folding::kWhereTiesStay), simples, out.folds);
  for (const NodePtr& node : plan.order()) {
    const auto read = simples.find(halves.at(node.get()).get());
    if (read != simples.end()) out.nodes[node.get()] = read->second;
  }
  return out;
}

/// The vertex that folds `node`, a vertex of the plan that `simple` was made of, or its last step; of `operands` none.
/// The result's own diagonals and broadcasts come after it.
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

bool is_extreme(const Kernel& aggregate) { return aggregate.name == "max" || aggregate.name == "min"; }

/// Ways through the vertices of `plan` that take an extreme, where one of the nodes in `wanted` is their value.
TiedWays tied_ways(const Plan& plan, const Simplified& simple, const std::set<const Node*>& wanted) {
  TiedWays ways(simple.folds);
  for (const NodePtr& node : plan.order()) {
    const auto* op = node->as<Einsum>();
    if (op == nullptr || !is_extreme(op->aggregate) || !simple.nodes.contains(node.get())) continue;
    const auto operands = operands_of(*node, simple);
    const NodePtr end = end_of(*node, simple, operands);
    if (end != nullptr && wanted.contains(end.get())) ways.count(end, operands);
  }
  return ways;
}

/// The gradient of what is flat almost everywhere.
NodePtr zeros_like(const NodePtr& input) {
  return mapped({input, fresh_labels(input->type().extents.size())}, kernel("expression[1, 0]")).node;
}

void check_request(const Plan& plan, const std::vector<std::string>& of) {
  std::set<std::string> names;
  for (const NodePtr& input : plan.inputs()) names.insert(input->as<Input>()->name);
  for (const std::string& name : of) {
    JOINSUM_USER_CHECK(names.contains(name), "gradient: no such input: name=", name);
  }
  for (const NodePtr& input : plan.inputs()) {
    const std::string& name = input->as<Input>()->name;
    const bool asked = std::find(of.begin(), of.end(), name) != of.end();
    JOINSUM_USER_CHECK(!asked || has_gradient(input->type().dtype),
                       "gradient: only floating tensors have one: input=", name, ", type=", input->type().text());
  }
  for (const auto& output : plan.outputs()) {
    JOINSUM_USER_CHECK(!names.contains("d_" + output.name),
                       "gradient: the name of an arriving gradient is taken: name=d_", output.name);
  }
}

}  // namespace

Plan gradient(const Plan& plan, const std::vector<std::string>& of, const std::map<std::string, Path>& paths) {
  check_request(plan, of);
  const Simplified simple = simplified(plan, paths);
  const auto wanted = depending(simple.plan, of);
  const TiedWays ways = tied_ways(plan, simple, wanted);
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
    const Labelled d = ways.shared(*node, {sum, node->as<Einsum>()->result});
    for (size_t i = 0; i < node->inputs().size(); ++i) {
      if (!wanted.contains(node->input(i).get())) continue;
      const bool step = !ends.contains(node.get());
      const auto gradient = Vertex(node, simple.value_of(node), ways.passed(*node, i, d), ways, step).of(i);
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

}  // namespace joinsum::einsum

#include "einsum/gradient.h"

#include <algorithm>
#include <set>

#include "einsum/binary.h"
#include "einsum/text.h"
#include "kernels/expression.h"
#include "kernels/table.h"

namespace joinsum::einsum {
namespace {

bool is_complex(DType dtype) { return dtype == DType::kComplex64 || dtype == DType::kComplex128; }

bool has_gradient(DType dtype) {
  return is_complex(dtype) || dtype == DType::kFloat16 || dtype == DType::kBFloat16 || dtype == DType::kFloat32 ||
         dtype == DType::kFloat64;
}

const Kernel kId{"id", {}};
const Kernel kAdd{"add", {}};
const Kernel kMul{"mul", {}};

Kernel kernel(const std::string& text) { return Kernel::parse(text); }

/// A tensor with a label for each axis.
struct Value {
  NodePtr node;
  Labels labels;

  int64_t extent(const std::string& label) const { return node->type().extents[axis_of(labels, label)]; }
};

Labels fresh_labels(size_t count) {
  Labels out;
  for (size_t a = 0; a < count; ++a)
    out.push_back(a < 26 ? std::string(1, static_cast<char>('a' + a)) : concatenate("l", a));
  return out;
}

/// Each element by itself.
Value mapped(const Value& x, const Kernel& map) {
  return map == kId ? x : Value{make(Einsum{{x.labels}, x.labels, map, kAdd, {}}, {x.node}), x.labels};
}

Value conjugate(const Value& x) { return is_complex(x.node->type().dtype) ? mapped(x, kernel("conjugate")) : x; }

/// An einsum of one operand, with extents for labels that only the result has.
Value einsum(const Value& x, const Labels& result, const Extents& extents, const Kernel& map = kId,
             const Kernel& aggregate = kAdd) {
  if (map == kId && result == x.labels) return x;
  Einsum op{{x.labels}, result, map, aggregate, {}};
  for (const std::string& label : without(labels_of({result}), x.labels)) op.extents[label] = extents.at(label);
  return {make(std::move(op), {x.node}), result};
}

/// An einsum of two operands.
Value einsum(const Value& x, const Value& y, const Labels& result, const Extents& extents, const Kernel& join) {
  Einsum op{{x.labels, y.labels}, result, join, kAdd, {}};
  for (const std::string& label : without(without(labels_of({result}), x.labels), y.labels)) {
    op.extents[label] = extents.at(label);
  }
  return {make(std::move(op), {x.node, y.node}), result};
}

// --- simple vertices
// --------------------------------------------------------------------------------------------------

/// The same plan from vertices of four kinds: a diagonal or a broadcast; a join of two operands without a diagonal,
/// that is summed if at all; a map of each element; a fold. Each has a short gradient.
class Simple {
 public:
  Plan of(const Plan& plan) {
    std::unordered_map<const Node*, NodePtr> made;
    for (const NodePtr& node : plan.order()) {
      std::vector<NodePtr> inputs;
      for (const NodePtr& input : node->inputs()) inputs.push_back(made.at(input.get()));
      const auto* call = node->as<Call>();
      JOINSUM_USER_CHECK(call == nullptr,
                         "gradient: a call of a torch operator has no gradient here; torch's autograd ",
                         "gives it before the graph is made: call=", call == nullptr ? "" : call->text());
      const auto* op = node->as<Einsum>();
      made[node.get()] = op == nullptr ? node : simple(*op, inputs);
    }
    std::vector<Plan::Output> outputs;
    for (const auto& output : plan.outputs())
      outputs.push_back({output.name, made.at(output.node.get()), std::nullopt});
    return Plan::make(std::move(outputs));
  }

  /// The value of a vertex: that of a fold of a join from one vertex, for which the joined tensor is not formed.
  NodePtr value_of(const NodePtr& node) const {
    const auto found = whole_.find(node.get());
    return found == whole_.end() ? node : found->second;
  }

 private:
  /// Keeps `op` as one vertex beside its fold. Floats of half width are folded in single precision there, so that no
  /// joined element need equal the extreme.
  void keep_whole(const NodePtr& fold, Einsum op, std::vector<NodePtr> inputs) {
    const DType dtype = fold->type().dtype;
    const bool narrow = dtype == DType::kFloat16 || dtype == DType::kBFloat16;
    const std::string join = kernels::is_expression(op.join) ? op.join.name : "contract_" + op.join.name;
    if (narrow || !kernels::has_row(join + "_" + op.aggregate.name)) return;
    whole_[fold.get()] = make(std::move(op), std::move(inputs));
  }

  NodePtr simple(const Einsum& op, const std::vector<NodePtr>& inputs) {
    std::vector<TensorType> types;
    std::vector<Value> operands;
    for (size_t i = 0; i < inputs.size(); ++i) {
      types.push_back(inputs[i]->type());
      operands.push_back(einsum({inputs[i], op.operands[i]}, labels_of({op.operands[i]}), {}));
    }
    const Extents extents = extents_of(op, types);
    const Labels all = labels_of(op.operands);
    const Labels kept = common(labels_of({op.result}), all);
    const bool sums = op.aggregate == kAdd || kept.size() == all.size();
    Value value;
    if (operands.size() == 2 && op.join.then.empty() && sums) {
      value = einsum(operands[0], operands[1], kept, extents, op.join);
    } else {
      Labels order = kept;
      const Labels gone = without(all, kept);
      order.insert(order.end(), gone.begin(), gone.end());
      value = operands.size() == 2 ? einsum(operands[0], operands[1], order, extents, op.join.first())
                                   : mapped(operands[0], op.join.first());
      for (const Kernel& next : op.join.then) value = mapped(value, next);
      value = einsum(value, kept, extents, kId, op.aggregate);
      if (operands.size() == 2 && op.join.then.empty()) {
        keep_whole(value.node, {{operands[0].labels, operands[1].labels}, kept, op.join, op.aggregate, {}},
                   {operands[0].node, operands[1].node});
      }
    }
    return einsum(value, op.result, extents).node;
  }

  std::unordered_map<const Node*, NodePtr> whole_;
};

// --- gradients of simple vertices
// -------------------------------------------------------------------------------------

/// Derivative of a map at x, with value z; nothing where it is 0 almost everywhere.
std::optional<Value> derivative(const Kernel& map, const Value& x, const Value& z) {
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
  const std::set<std::string> flat{"sign", "is_zero", "relu_derivative"};
  JOINSUM_USER_CHECK(flat.contains(name), "gradient: a kernel without a gradient: kernel=", map.text());
  return std::nullopt;
}

/// Gradients of one simple vertex for its operands.
class Vertex {
 public:
  Vertex(const Node& node, NodePtr self, NodePtr arrived)
      : op_(*node.as<Einsum>()), z_{std::move(self), op_.result}, d_{std::move(arrived), op_.result} {
    std::vector<TensorType> types;
    for (size_t i = 0; i < node.inputs().size(); ++i) {
      operands_.push_back({node.input(i), op_.operands[i]});
      types.push_back(node.input(i)->type());
    }
    extents_ = extents_of(op_, types);
  }

  /// For operand `i`; nothing where it is 0 almost everywhere.
  std::optional<Value> of(size_t i) const {
    if (kernels::is_expression(op_.join)) return of_expression(i);
    if (operands_.size() == 1) return of_unary();
    return of_binary(i);
  }

 private:
  std::optional<Value> of_unary() const {
    const Value& x = operands_[0];
    if (op_.join != kId) {
      if (op_.join.name == "negate" || op_.join.name == "scale") return mapped(d_, op_.join);
      if (op_.join.name == "conjugate") return mapped(d_, op_.join);
      if (op_.join.name == "cast") return mapped(d_, Kernel{"cast", {name_of(x.node->type().dtype)}});
      if (op_.join.name == "tanh") {
        const Value square = mapped(conjugate(z_), kernel("square"));
        return einsum(d_, einsum(d_, square, x.labels, extents_, kMul), x.labels, extents_, kernel("sub"));
      }
      const auto slope = derivative(op_.join, x, z_);
      if (!slope) return std::nullopt;
      return einsum(d_, *slope, x.labels, extents_, kMul);
    }
    const bool folds = !without(x.labels, op_.result).empty();
    // Transposes of each other: diagonals and broadcasts, sums and broadcasts.
    if (!folds || op_.aggregate == kAdd) return einsum(d_, x.labels, extents_);
    if (op_.aggregate.name == "max" || op_.aggregate.name == "min") return of_extreme();
    if (op_.aggregate.name == "mul") return of_product();
    JOINSUM_USER_CHECK(op_.aggregate.name == "logaddexp",
                       "gradient: an aggregation without a gradient: aggregate=", op_.aggregate.text());
    const Value share = mapped(einsum(x, z_, x.labels, extents_, kernel("sub")), kernel("exp"));
    return einsum(d_, share, x.labels, extents_, kMul);
  }

  /// Elements that equal the extreme share equally, as torch.amax's.
  Value of_extreme() const {
    const Value& x = operands_[0];
    const Value ties = einsum(x, z_, x.labels, extents_, kernel("equal"));
    const Value count = einsum(ties, z_.labels, extents_);
    return einsum(einsum(d_, count, z_.labels, extents_, kernel("div")), ties, x.labels, extents_, kMul);
  }

  /// The product of the other elements: with zeros counted apart from the product of the rest.
  Value of_product() const {
    const Value x = conjugate(operands_[0]);
    const Value zero = mapped(x, kernel("is_zero"));
    const Value filled = einsum(x, zero, x.labels, extents_, kAdd);
    const Value product = einsum(filled, z_.labels, extents_, kId, kMul);
    const Value zeros = einsum(zero, z_.labels, extents_);
    const Value others = mapped(einsum(zeros, zero, x.labels, extents_, kernel("sub")), kernel("is_zero"));
    const Value rest = einsum(product, filled, x.labels, extents_, kernel("div"));
    const Value slope = einsum(rest, others, x.labels, extents_, kMul);
    return einsum(d_, slope, x.labels, extents_, kMul);
  }

  /// Σ d ∂f/∂xᵢ, an expression of the operands and of what arrives.
  std::optional<Value> of_expression(size_t i) const {
    using kernels::Expression;
    const auto count = static_cast<int64_t>(operands_.size());
    const Expression slope = kernels::expression_of(op_.join).derivative(static_cast<int64_t>(i));
    if (slope.is(0)) return std::nullopt;
    const Labels& result = operands_[i].labels;
    Einsum op{{}, result, kId, kAdd, {}};
    std::vector<NodePtr> inputs;
    for (const Value& each : operands_) {
      inputs.push_back(conjugate(each).node);
      op.operands.push_back(each.labels);
    }
    inputs.push_back(d_.node);
    op.operands.push_back(d_.labels);
    const Expression arrived = Expression::of_operand(count);
    op.join = kernels::expression_kernel(Expression::of(kernels::Function::kMultiply, {arrived, slope}), count + 1);
    return Value{make(std::move(op), std::move(inputs)), result};
  }

  std::optional<Value> of_binary(size_t i) const {
    const Value& x = operands_[i];
    const Value& y = operands_[1 - i];
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
  Value joined(const std::string& join, bool in_order) const {
    const Value& first = operands_[in_order ? 0 : 1];
    const Value& second = operands_[in_order ? 1 : 0];
    return einsum(first, second, labels_of({op_.operands[0], op_.operands[1]}), extents_, kernel(join));
  }

  Value sloped(size_t i, const Value& slope) const { return einsum(d_, slope, operands_[i].labels, extents_, kMul); }

  /// Labels of `x` and of what arrives; and how often an element of them counts, as labels of the other operand that
  /// are summed do not show.
  std::pair<Labels, int64_t> seen(const Value& x) const {
    int64_t times = 1;
    for (const std::string& label : without(without(labels_of(op_.operands), x.labels), d_.labels)) {
      times *= extents_.at(label);
    }
    return {common(d_.labels, x.labels), times};
  }

  /// What arrives, summed for operand `i`, times `factor`.
  Value passed(size_t i, int64_t factor) const {
    const Value& x = operands_[i];
    const auto [labels, times] = seen(x);
    Value sum = einsum(d_, labels, extents_);
    if (times * factor != 1) sum = mapped(sum, Kernel{"scale", {times * factor}});
    return einsum(sum, x.labels, extents_);
  }

  /// -Σ d x / y²
  Value of_divisor() const {
    const Value& x = operands_[0];
    const Value y = conjugate(operands_[1]);
    const Labels labels = common(y.labels, labels_of({d_.labels, x.labels}));
    const Value sum = einsum(d_, conjugate(x), labels, extents_, kMul);
    const Value once = einsum(sum, y, y.labels, extents_, kernel("div"));
    return mapped(einsum(once, y, y.labels, extents_, kernel("div")), kernel("negate"));
  }

  /// 2 Σ d (x - y). Where that is summed, the joined tensor is not formed: x Σ d - Σ d y.
  Value of_square(size_t i) const {
    const Value x = operands_[i];
    const Value y = operands_[1 - i];
    const Labels all = labels_of({x.labels, y.labels});
    if (without(all, d_.labels).empty()) {
      const Value difference = conjugate(einsum(x, y, all, extents_, kernel("sub")));
      return mapped(einsum(d_, difference, x.labels, extents_, kMul), kernel("scale[2]"));
    }
    const auto [labels, times] = seen(x);
    Value sum = einsum(d_, labels, extents_);
    if (times != 1) sum = mapped(sum, Kernel{"scale", {times}});
    const Value own = einsum(sum, conjugate(x), x.labels, extents_, kMul);
    const Value other = einsum(d_, conjugate(y), x.labels, extents_, kMul);
    return mapped(einsum(own, other, x.labels, extents_, kernel("sub")), kernel("scale[2]"));
  }

  const Einsum& op_;
  Value z_;
  Value d_;
  std::vector<Value> operands_;
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

Plan gradient(const Plan& plan, const std::vector<std::string>& of) {
  check_request(plan, of);
  Simple vertices;
  const Plan simple = vertices.of(binary(plan));
  const auto wanted = depending(simple, of);
  Arrived arrived;
  for (const auto& output : simple.outputs()) {
    if (!wanted.contains(output.node.get())) continue;
    arrived.add(output.node, make_input("d_" + output.name, output.node->type()));
  }
  for (auto at = simple.order().rbegin(); at != simple.order().rend(); ++at) {
    const NodePtr& node = *at;
    const NodePtr d = arrived.at(node.get());
    if (d == nullptr || node->as<Einsum>() == nullptr) continue;
    const Vertex vertex(*node, vertices.value_of(node), d);
    for (size_t i = 0; i < node->inputs().size(); ++i) {
      if (!wanted.contains(node->input(i).get())) continue;
      if (const auto gradient = vertex.of(i)) arrived.add(node->input(i), gradient->node);
    }
  }
  std::vector<Plan::Output> outputs;
  for (const NodePtr& input : simple.inputs()) {
    const std::string& name = input->as<Input>()->name;
    if (std::find(of.begin(), of.end(), name) == of.end() || !reaches_an_output(simple, name)) continue;
    const NodePtr d = arrived.at(input.get());
    outputs.push_back({"d_" + name, d == nullptr ? zeros_like(input) : d, std::nullopt});
  }
  JOINSUM_USER_CHECK(!outputs.empty(), "gradient: no output depends on these inputs: inputs=", of);
  return Plan::make(std::move(outputs));
}

}  // namespace joinsum::einsum

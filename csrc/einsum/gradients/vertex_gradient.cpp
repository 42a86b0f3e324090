#include "einsum/gradients/vertex_gradient.h"

#include <algorithm>

#include "kernels/table/expression_kernel.h"

namespace joinsum::einsum::gradients {
namespace {

Kernel kernel(const std::string& text) { return Kernel::parse(text); }

/// Whether `formula` multiplies what arrives by the difference of the operands.
bool multiplies_difference(const kernels::table::Formula& formula) {
  static const auto kProduct = kernels::table::Formula::parse("mul(d, conjugate(sub(x, y)))");
  return formula == kProduct;
}

}  // namespace

VertexGradient::VertexGradient(const NodePtr& node, const NodePtr& value, Labelled arrived, const TiedTerms& terms,
                               bool step)
    : node_(*node),
      op_(*node->as<Einsum>()),
      z_{value, op_.result},
      d_(std::move(arrived)),
      terms_(terms),
      step_(step),
      extents_(extents_of(op_, types_of<Node>(node->inputs()))) {
  for (size_t i = 0; i < node->inputs().size(); ++i) operands_.push_back({node->input(i), op_.operands[i]});
}

std::optional<Labelled> VertexGradient::of(size_t i) const {
  if (kernels::table::is_expression(op_.join)) return of_expression(i);
  if (operands_.size() == 1 && op_.join == kId) return of_aggregation();
  return of_kernel(i);
}

// --- joins and maps --------------------------------------------------------------------------------------------------

std::optional<Labelled> VertexGradient::of_kernel(size_t i) const {
  const auto formula = kernels::table::derivative(op_.join, i);
  JOINSUM_USER_CHECK(formula, "gradient: a kernel without a gradient: kernel=", op_.join.text());
  if (formula->is("zero")) return std::nullopt;
  if (formula->is("d")) return passed(i, 1);
  if (formula->kernel.name == "scale" && formula->operands[0].is("d")) return passed(i, formula->kernel.integer(0));
  return linear(*formula, i, true);
}

/// The kernel of a formula for operand `i`.
Kernel VertexGradient::kernel_of(const Formula& formula, size_t i) const {
  if (formula.kernel.name == "this") return op_.join;
  if (formula.kernel == kernel("cast")) return {"cast", {name_of(operands_[i].node->type().dtype)}};
  return formula.kernel;
}

/// A formula without `d`. Kernels of several values have all labels.
Labelled VertexGradient::value(const Formula& formula, size_t i) const {
  if (formula.is("x")) return operands_[i];
  if (formula.is("y")) return operands_[1 - i];
  if (formula.is("z")) return z_;
  const Labelled first = value(formula.operands[0], i);
  if (formula.kernel.name == "conjugate") return conjugate(first);
  if (formula.operands.size() == 1) return mapped(first, kernel_of(formula, i));
  return einsum(first, value(formula.operands[1], i), labels_of(op_.operands), extents_, formula.kernel);
}

/// A formula that is linear in `d`: labels that operand `i` lacks are summed as soon as a product or quotient has them.
/// `last` says that the result has all labels of the operand.
Labelled VertexGradient::linear(const Formula& formula, size_t i, bool last) const {
  const Labelled& x = operands_[i];
  if (formula.is("d")) return d_;
  if (formula.operands.size() == 1) return mapped(linear(formula.operands[0], i, last), kernel_of(formula, i));
  if (multiplies_difference(formula) && !without(labels_of(op_.operands), d_.labels).empty()) {
    return times_difference(i);
  }
  const Formula& second = formula.operands[1];
  const Labelled left = linear(formula.operands[0], i, false);
  const Labelled right = second.reads("d") ? linear(second, i, false) : value(second, i);
  const Labels labels = last ? x.labels : common(x.labels, labels_of({left.labels, right.labels}));
  return einsum(left, right, labels, extents_, formula.kernel);
}

/// Σ d (x - y), for which the joined tensor is not formed: x Σ d - Σ d y.
Labelled VertexGradient::times_difference(size_t i) const {
  const Labelled& x = operands_[i];
  const Labelled own = einsum(summed(x, 1), conjugate(x), x.labels, extents_, kMul);
  const Labelled other = einsum(d_, conjugate(operands_[1 - i]), x.labels, extents_, kMul);
  return einsum(own, other, x.labels, extents_, kernel("sub"));
}

/// What arrives, summed for operand `i`, times `factor`.
Labelled VertexGradient::passed(size_t i, int64_t factor) const {
  return einsum(summed(operands_[i], factor), operands_[i].labels, extents_);
}

/// What arrives, times `factor`, with those of its labels that `x` has, summed over the others. Each element counts as
/// often as there are indices of labels that neither shows, as they are summed and only the other operand has them.
Labelled VertexGradient::summed(const Labelled& x, int64_t factor) const {
  for (const std::string& label : without(without(labels_of(op_.operands), x.labels), d_.labels)) {
    factor *= extents_.at(label);
  }
  const Labelled sum = einsum(d_, common(d_.labels, x.labels), extents_);
  return factor == 1 ? sum : mapped(sum, Kernel{"scale", {factor}});
}

/// Σ d ∂f/∂xᵢ, an expression of the operands and of what arrives.
std::optional<Labelled> VertexGradient::of_expression(size_t i) const {
  using kernels::expression::Expression;
  const auto count = static_cast<int64_t>(operands_.size());
  const Expression slope = kernels::table::expression_of(op_.join).derivative(static_cast<int64_t>(i));
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
  op.join = kernels::table::expression_kernel(
      Expression::of(kernels::expression::Function::kMultiply, {arrived, slope}), count + 1);
  return Labelled{make(std::move(op), std::move(inputs)), result};
}

// --- aggregations ----------------------------------------------------------------------------------------------------

Labelled VertexGradient::of_aggregation() const {
  const Labelled& x = operands_[0];
  // Transposes of each other: diagonals and broadcasts.
  if (without(x.labels, op_.result).empty()) return einsum(d_, x.labels, extents_);
  const auto reduction = kernels::table::row_of(op_.aggregate).reduces_by;
  JOINSUM_USER_CHECK(reduction, "gradient: an aggregation without a gradient: aggregate=", op_.aggregate.text());
  switch (*reduction) {
    case kernels::semiring::Reduction::kAdd:
      return einsum(d_, x.labels, extents_);
    case kernels::semiring::Reduction::kMax:
    case kernels::semiring::Reduction::kMin:
      return einsum(d_, terms_.ties(node_), x.labels, extents_, kMul);
    case kernels::semiring::Reduction::kMul:
      return of_product();
    case kernels::semiring::Reduction::kLogAddExp:
      return of_logarithm();
  }
  JOINSUM_CHECK(false, "aggregate=", op_.aggregate.text());
}

/// d exp(x - z). Where a later step reduces z further, an infinite one leaves its elements the gradients that they have
/// in the whole reduction: what arrives is not a number only where that is infinite, and concerns the equal elements
/// alone.
Labelled VertexGradient::of_logarithm() const {
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
Labelled VertexGradient::of_product() const {
  const Labelled x = conjugate(operands_[0]);
  const bool real = !is_complex(x.node->type().dtype);
  const Labelled zero = mapped(x, kernel("is_zero"));
  const Labelled filled =
      real ? mapped(x, kernel("expression[1, where(x0==0,1,where(x0==inf,1,where(x0==-inf,-1,x0)))]"))
           : einsum(x, zero, x.labels, extents_, kAdd);
  const Labelled small =
      real ? mapped(x, kernel("expression[1, where(x0==0,x0,0)]")) : einsum(x, zero, x.labels, extents_, kMul);
  const Labelled zeros = sum_of_others(zero);
  const Labelled single =
      einsum(mapped(zeros, kernel("expression[1, x0-1] | is_zero")), sum_of_others(small), x.labels, extents_, kMul);
  const Labelled product = einsum(filled, z_.labels, extents_, kId, kMul);
  Labelled slope = einsum(product, filled, x.labels, extents_, kernel("div"));
  slope = einsum(slope, einsum(mapped(zeros, kernel("is_zero")), single, x.labels, extents_, kAdd), x.labels, extents_,
                 kMul);
  if (real) {
    const Labelled infinite = mapped(x, kernel("expression[1, where(x0==inf,1,where(x0==-inf,1,0))]"));
    const Labelled factor = mapped(sum_of_others(infinite), kernel("expression[1, where(x0==0,1,inf)]"));
    slope = einsum(slope, factor, x.labels, extents_, kMul);
  }
  return einsum(d_, slope, x.labels, extents_, kMul);
}

/// The sum of the other elements that are aggregated with each.
Labelled VertexGradient::sum_of_others(const Labelled& x) const {
  return einsum(einsum(x, z_.labels, extents_), x, x.labels, extents_, kernel("sub"));
}

}  // namespace joinsum::einsum::gradients

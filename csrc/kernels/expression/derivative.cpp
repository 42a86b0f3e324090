#include <algorithm>
#include <utility>

#include "base/check.h"
#include "kernels/expression/expression.h"

namespace joinsum::kernels::expression {
namespace {

using Arguments = std::vector<Expression>;

Expression plus(Expression a, Expression b) { return Expression::of(Function::kAdd, {std::move(a), std::move(b)}); }
Expression minus(Expression a, Expression b) {
  return Expression::of(Function::kSubtract, {std::move(a), std::move(b)});
}
Expression times(Expression a, Expression b) {
  return Expression::of(Function::kMultiply, {std::move(a), std::move(b)});
}
Expression over(Expression a, Expression b) { return Expression::of(Function::kDivide, {std::move(a), std::move(b)}); }
Expression constant(double value) { return Expression::of_number(value); }
Expression call(Function function, Arguments arguments) { return Expression::of(function, std::move(arguments)); }

/// As torch's: 0 by the base where the exponent is 0, and by the exponent where the base is 0 and the exponent is not
/// below it.
Expression power_derivative(const Expression& power, const Expression& base, const Expression& exponent) {
  const Expression& a = power.arguments[0];
  const Expression& b = power.arguments[1];
  Expression out = constant(0);
  if (!base.is(0)) {
    const Expression slope = times(b, call(Function::kPower, {a, minus(b, constant(1))}));
    const bool fixed = b.function == Function::kNumber;
    const Expression none = call(Function::kEqual, {b, constant(0)});
    out = times(fixed ? slope : call(Function::kWhere, {none, constant(0), slope}), base);
  }
  if (exponent.is(0)) return out;
  const Expression at_zero =
      times(call(Function::kEqual, {a, constant(0)}), call(Function::kGreaterEqual, {b, constant(0)}));
  const Expression slope = times(power, call(Function::kLog, {a}));
  return plus(out, times(call(Function::kWhere, {at_zero, constant(0), slope}), exponent));
}

/// Of a function of one argument, whose derivative is `inner`.
Expression unary_derivative(const Expression& e, const Expression& inner) {
  const Expression& a = e.arguments[0];
  switch (e.function) {
    case Function::kNegate:
      return call(Function::kNegate, {inner});
    case Function::kExp:
      return times(e, inner);
    case Function::kLog:
      return over(inner, a);
    case Function::kSqrt:
      return over(inner, times(e, constant(2)));
    case Function::kTanh:
      return times(minus(constant(1), times(e, e)), inner);
    case Function::kSigmoid:
      return times(times(e, minus(constant(1), e)), inner);
    default:
      JOINSUM_CHECK(false, "expression=", e.text());
  }
}

}  // namespace

Expression Expression::derivative(int64_t wanted) const {
  if (function == Function::kNumber) return constant(0);
  if (function == Function::kOperand) return constant(operand == wanted ? 1 : 0);
  if (compares(function)) return constant(0);
  Arguments inner;
  for (const Expression& each : arguments) inner.push_back(each.derivative(wanted));
  if (std::all_of(inner.begin(), inner.end(), [](const Expression& each) { return each.is(0); })) return inner[0];
  switch (function) {
    case Function::kAdd:
      return plus(inner[0], inner[1]);
    case Function::kSubtract:
      return minus(inner[0], inner[1]);
    case Function::kMultiply:
      return plus(times(inner[0], arguments[1]), times(arguments[0], inner[1]));
    case Function::kDivide:
      return over(minus(inner[0], times(*this, inner[1])), arguments[1]);
    case Function::kPower:
      return power_derivative(*this, inner[0], inner[1]);
    case Function::kWhere:
      return call(Function::kWhere, {arguments[0], inner[1], inner[2]});
    default:
      return unary_derivative(*this, inner[0]);
  }
}

}  // namespace joinsum::kernels::expression

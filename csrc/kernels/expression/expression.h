#pragma once

#include <string>
#include <vector>

#include "base/dtype.h"

namespace joinsum::kernels::expression {

/// Functions of a scalar expression.
enum class Function {
  kNumber,
  kOperand,
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kNegate,
  kPower,
  kExp,
  kLog,
  kSqrt,
  kTanh,
  kSigmoid,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kEqual,
  kNotEqual,
  kWhere,
};

/// A scalar function of one element of each operand, as data: `exp(x0-x1)*2`. Operands are x0, x1, ..., or x, y and z;
/// there are numbers (`inf` among them), + - * / and signs, the comparisons < <= > >= == !=, which are 1 or 0, and
/// exp, log, sqrt, tanh, sigmoid, pow(a,b) and where(condition,a,b), whose condition holds where it is not 0.
struct Expression {
  Function function = Function::kNumber;
  double number = 0;    ///< of kNumber
  int64_t operand = 0;  ///< of kOperand
  std::vector<Expression> arguments = {};

  static Expression of_number(double value) { return {Function::kNumber, value}; }
  static Expression of_operand(int64_t operand) { return {Function::kOperand, 0, operand}; }
  /// With numbers worked out and what adds or multiplies nothing left out.
  static Expression of(Function function, std::vector<Expression> arguments);

  /// Raises PlanError naming the place, for an operand that `operands` does not have, too.
  static Expression parse(const std::string& text, int64_t operands);
  /// Printed without blanks, with the fewest brackets; `parse` reads it.
  std::string text() const;
  bool operator==(const Expression&) const = default;

  bool is(double value) const { return function == Function::kNumber && number == value; }

  /// Numbers of the operands that it reads, rising.
  std::vector<int64_t> reads() const;
  /// With `arguments[i]` in place of operand i.
  Expression substituted(const std::vector<Expression>& with) const;
  double value(const double* x) const;
  /// Floating-point operations of one evaluation, counted as Row::flops_per_element is.
  int64_t flops() const;
  /// The same dtype; raises KernelError where a function is not defined on it.
  DType result_dtype(DType dtype) const;
  /// With respect to operand `operand`; comparisons are flat, and so is where in its condition.
  Expression derivative(int64_t operand) const;
};

/// Whether a function compares its two arguments.
bool compares(Function function);

}  // namespace joinsum::kernels::expression

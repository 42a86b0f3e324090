#pragma once

#include "kernels/expression/expression.h"
#include "kernels/table/kernel.h"

namespace joinsum::kernels::table {

/// The kernel of an expression of `operands` operands: a named one where it is the same function (`mul` for `x0*x1`),
/// else `expression[2, exp(x0-x1)*2]`.
Kernel expression_kernel(const expression::Expression& expression, int64_t operands);

/// Whether a kernel is an expression; and the expression that it is, or that it combines elements by.
bool is_expression(const Kernel& kernel);
expression::Expression expression_of(const Kernel& kernel);

}  // namespace joinsum::kernels::table

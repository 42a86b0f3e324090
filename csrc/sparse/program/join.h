#pragma once

#include <string>
#include <vector>

#include "base/dtype.h"
#include "sparse/program/expression.h"

namespace joinsum::sparse::program {

/// What an einsum's `join` makes of its operands: an elementwise kernel (mul, add, sub, div, max, min, pow,
/// squared_difference, abs_difference; of one operand exp, log, sqrt, sigmoid, relu, negate, square, abs, id), several
/// that follow each other (`sub | square`), or an expression of x0, x1, ... More operands than two are taken from the
/// left. `dtype` is theirs. Raises PlanError for a kernel or function that sparse programs do not have.
ExpressionPtr joined(const std::string& join, const std::vector<ExpressionPtr>& operands, DType dtype);

/// The operator that reduces by the einsum's `agg`: sum, prod, max, min, any, all. Raises PlanError for another one.
Operator aggregate_named(const std::string& aggregation);

}  // namespace joinsum::sparse::program

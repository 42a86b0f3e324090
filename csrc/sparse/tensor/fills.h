#pragma once

#include <vector>

#include "base/dtype.h"
#include "sparse/operators/operators.h"

/// What elements that are not stored are in results, in the arithmetic of a dtype: equal to what kernels compute.
namespace joinsum::sparse::tensor {

using operators::Operator;

/// The value of a map of children with these values. One that annihilates decides, the first of several.
double fill_of_map(DType dtype, Operator op, const std::vector<double>& children);

/// Whether a child at `child` alone puts the map, whose value is `map` where all children are at their fill, there.
bool decides(Operator op, double child, double map);

/// op(x, ..., x) of n equal values; the identity for none.
double fill_of_aggregate(DType dtype, Operator op, double x, double n);

}  // namespace joinsum::sparse::tensor

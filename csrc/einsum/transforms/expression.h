#pragma once

#include "einsum/nodes.h"

namespace joinsum::einsum::transforms {

/// Splits a vertex whose join is an expression of several operands into vertices of at most two: each part of the
/// expression that reads two operands becomes a tensor of their labels, and the last part is aggregated. Equal parts
/// become one tensor.
NodePtr expression_apart(const Einsum& op, const std::vector<NodePtr>& inputs);

}  // namespace joinsum::einsum::transforms

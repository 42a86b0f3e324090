#pragma once

#include "einsum/nodes.h"

namespace joinsum::einsum::transforms {

/// A vertex whose join is an expression of several operands, from vertices of at most two: each part of the expression
/// that reads two operands is a tensor of their labels, and the last part is folded. Of parts that are equal there is
/// one tensor.
NodePtr expression_apart(const Einsum& op, const std::vector<NodePtr>& inputs);

}  // namespace joinsum::einsum::transforms

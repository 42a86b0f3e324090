#pragma once

#include "einsum/nodes.h"

namespace joinsum::einsum {

/// Type of `operation` over inputs of these types; raises PlanError `einsum: what is wrong: name=value`, or
/// KernelError.
TensorType infer(const Operation& operation, const std::vector<TensorType>& inputs);

}  // namespace joinsum::einsum

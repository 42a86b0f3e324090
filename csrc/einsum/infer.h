#pragma once

#include "einsum/nodes.h"

namespace joinsum::einsum {

/// Type of `operation` over inputs of these types; raises PlanError `einsum: what is wrong: name=value`, or
/// KernelError.
TensorType infer(const Operation& operation, const std::vector<TensorType>& inputs);

/// Raises PlanError or KernelError where `join` is no elementwise kernel of so many operands.
void check_join(const Kernel& join, size_t operands);

}  // namespace joinsum::einsum

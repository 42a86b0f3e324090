#pragma once

#include "kernels/table.h"

namespace joinsum::kernels {

/// Runs `kernel` with plain loops: the oracle of every other implementation. Output number `output` of a kernel with
/// several results. Raises KernelError for a user's kernel (its reference is the function the user gave).
Array reference(const Kernel& kernel, const std::vector<Array>& operands, const Scalars& scalars = {},
                int64_t output = 0);

}  // namespace joinsum::kernels

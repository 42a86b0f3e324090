#pragma once

#include "kernels/reference/array.h"
#include "kernels/table/table.h"

namespace joinsum::kernels::reference {

/// Runs `kernel` with plain loops: the oracle of every other implementation. Output number `output` of a kernel with
/// several results. Raises KernelError for a user's kernel (its reference is the function the user gave).
Array run(const table::Kernel& kernel, const std::vector<Array>& operands, const table::Scalars& scalars = {},
          int64_t output = 0);

}  // namespace joinsum::kernels::reference

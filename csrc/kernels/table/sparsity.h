#pragma once

#include "kernels/table/kernel.h"

namespace joinsum::kernels::table {

/// Whether the kernel's result is sparse where its operands that are said to be are: a contraction of two sparse
/// operands, or an elementwise kernel of two that is zero at two zeros, or, of one, at its zeros.
bool gives_sparse(const Kernel& kernel, bool left, bool right);

}  // namespace joinsum::kernels::table

#pragma once

#include <ATen/ATen.h>

#include "kernels/table/table.h"

namespace joinsum::kernels::sparse {

/// A kernel of two arrays of which one is sparse at least, whose result is sparse (`table::gives_sparse`, sparsity.h).
/// The first `batch` axes of both are those of a batch, broadcast where an operand has one element.
at::Tensor of_pair(const table::Kernel& kernel, const at::Tensor& left, const at::Tensor& right, int64_t batch);

}  // namespace joinsum::kernels::sparse

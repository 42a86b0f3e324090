#pragma once

#include <ATen/ATen.h>

namespace joinsum::kernels::dense {

/// Two contiguous matrices, and for each entry of a sparse matrix the rows of both that it meets: row `to` of `result`
/// is increased by the entry's value times row `from` of `dense`.
struct SparseRows {
  at::Tensor values;
  at::Tensor from;  ///< 64-bit integers
  at::Tensor to;    ///< likewise
  at::Tensor dense;
  at::Tensor result;
};

/// Adds all. Each element of the result is summed in the order of the entries, on any number of threads.
void add_rows(const SparseRows& rows);

}  // namespace joinsum::kernels::dense

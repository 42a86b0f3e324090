#pragma once

#include "kernels/semiring/pair_operations.h"

namespace joinsum::kernels::semiring {

/// A batch of generalised matrix products in the memory of one GPU: out[b, r, c] = out[b, r, c] ⊕ (⊕ over k of
/// left[b, r, k] ⊗ right[b, k, c]). Strides count elements; `out` lies in the order of its axes.
struct CudaProblem {
  Join join;
  Reduction reduction;
  Type type;
  int64_t batch, rows, columns, inner;
  const void* left;
  int64_t left_strides[3];  ///< of b, r, k
  const void* right;
  int64_t right_strides[3];  ///< of b, k, c
  void* out;
  void* stream;  ///< a cudaStream_t of the current device
};

/// Whether this build has loops for CUDA that take the type (floats and integers of 32 and 64 bits) and the reduction
/// (kLogAddExp of floats).
bool cuda_takes(Type type, Reduction reduction);

/// Starts them. Raises KernelError with CUDA's message where they cannot start.
void run_on_cuda(const CudaProblem& problem);

}  // namespace joinsum::kernels::semiring

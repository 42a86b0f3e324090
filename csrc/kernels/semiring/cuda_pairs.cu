#include <algorithm>
#include <cuda_runtime.h>

#include "base/check.h"
#include "kernels/semiring/cuda_pairs.h"

namespace joinsum::kernels::semiring {
namespace {

/// A block of kSide² threads computes a tile of (kSide kEach)² results, kEach² by each thread, and goes through the
/// inner indices kDepth at a time, both operands' parts in shared memory.
constexpr int kSide = 16;
constexpr int kEach = 4;
constexpr int kTile = kSide * kEach;
constexpr int kDepth = 16;
/// The largest extents of a grid's second and third axis.
constexpr int64_t kMostBlocks = 65535;

/// Copies a part of an operand, `across` (rows or columns) by k, to shared memory; zeros fill what lies outside, and
/// are never reduced.
template <class T>
__device__ void load(T (&part)[kDepth][kTile], const T* from, int64_t first, int64_t extent, int64_t across_stride,
                     int64_t first_k, int64_t inner, int64_t inner_stride) {
  const bool along_inner = inner_stride == 1;
  for (int i = threadIdx.y * kSide + threadIdx.x; i < kDepth * kTile; i += kSide * kSide) {
    const int k = along_inner ? i % kDepth : i / kTile;
    const int across = along_inner ? i / kDepth : i % kTile;
    const bool inside = first + across < extent && first_k + k < inner;
    part[k][across] = inside ? from[(first + across) * across_stride + (first_k + k) * inner_stride] : T(0);
  }
}

/// One tile of each index of the batch that the block has.
template <class T, Join join, Reduction reduction>
__global__ void reduce_tiles(const CudaProblem problem) {
  __shared__ T left[kDepth][kTile];
  __shared__ T right[kDepth][kTile];
  const int64_t row = static_cast<int64_t>(blockIdx.y) * kTile, column = static_cast<int64_t>(blockIdx.x) * kTile;
  for (int64_t b = blockIdx.z; b < problem.batch; b += gridDim.z) {
    const T* a = static_cast<const T*>(problem.left) + b * problem.left_strides[0];
    const T* c = static_cast<const T*>(problem.right) + b * problem.right_strides[0];
    T total[kEach][kEach];
    for (int i = 0; i < kEach * kEach; ++i) total[i / kEach][i % kEach] = nothing<reduction, T>();
    for (int64_t k = 0; k < problem.inner; k += kDepth) {
      load(left, a, row, problem.rows, problem.left_strides[1], k, problem.inner, problem.left_strides[2]);
      load(right, c, column, problem.columns, problem.right_strides[2], k, problem.inner, problem.right_strides[1]);
      __syncthreads();
      const int some = static_cast<int>(problem.inner - k < kDepth ? problem.inner - k : kDepth);
      for (int d = 0; d < some; ++d) {
#pragma unroll
        for (int i = 0; i < kEach * kEach; ++i) {
          const T x = left[d][threadIdx.y + i / kEach * kSide], y = right[d][threadIdx.x + i % kEach * kSide];
          T& sum = total[i / kEach][i % kEach];
          sum = reduced<reduction, false>(sum, combine<join, false>(x, y));
        }
      }
      __syncthreads();
    }
    T* out = static_cast<T*>(problem.out) + b * problem.rows * problem.columns;
    for (int i = 0; i < kEach * kEach; ++i) {
      const int64_t r = row + threadIdx.y + i / kEach * kSide, col = column + threadIdx.x + i % kEach * kSide;
      if (r >= problem.rows || col >= problem.columns) continue;
      T& to = out[r * problem.columns + col];
      to = reduced<reduction, false>(to, total[i / kEach][i % kEach]);
    }
  }
}

template <class T>
void launch(const CudaProblem& problem) {
  const int64_t high = (problem.rows + kTile - 1) / kTile, wide = (problem.columns + kTile - 1) / kTile;
  JOINSUM_KERNEL_CHECK(high <= kMostBlocks, "contract: too many rows for a GPU's grid: rows=", problem.rows,
                       ", most=", kMostBlocks * kTile);
  const dim3 grid(static_cast<unsigned>(wide), static_cast<unsigned>(high),
                  static_cast<unsigned>(std::min(problem.batch, kMostBlocks)));
  with_constant(problem.join, [&](auto join) {
    with_constant(problem.reduction, [&](auto reduction) {
      constexpr Join kJoin = decltype(join)::value;
      constexpr Reduction kReduction = decltype(reduction)::value;
      constexpr bool kDivides = kJoin == Join::kDiv || kJoin == Join::kReversedDiv;
      if constexpr (!(kJoin == Join::kMul && kReduction == Reduction::kAdd) && !(kDivides && std::is_integral_v<T>)) {
        reduce_tiles<T, kJoin, kReduction>
            <<<grid, dim3(kSide, kSide), 0, static_cast<cudaStream_t>(problem.stream)>>>(problem);
      }
      return 0;
    });
    return 0;
  });
  const cudaError_t error = cudaGetLastError();
  JOINSUM_KERNEL_CHECK(error == cudaSuccess, "contract: CUDA did not start the loops: ", cudaGetErrorString(error));
}

}  // namespace

bool cuda_takes(Type type, Reduction reduction) {
  if (reduction == Reduction::kLogAddExp) return false;
  return type == Type::kFloat || type == Type::kDouble || type == Type::kInt64 || type == Type::kInt32;
}

void run_on_cuda(const CudaProblem& problem) {
  JOINSUM_CHECK(cuda_takes(problem.type, problem.reduction), "type=", static_cast<int>(problem.type));
  switch (problem.type) {
    case Type::kFloat:
      return launch<float>(problem);
    case Type::kDouble:
      return launch<double>(problem);
    case Type::kInt64:
      return launch<int64_t>(problem);
    default:
      return launch<int32_t>(problem);
  }
}

}  // namespace joinsum::kernels::semiring

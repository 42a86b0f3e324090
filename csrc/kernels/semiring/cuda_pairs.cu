#include <algorithm>
#include <cuda_runtime.h>
#include <limits>
#include <type_traits>

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
/// The largest extent of a grid's second axis.
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

/// What a thread keeps of one result. Without initializers of members: nvcc 13.0 initializes the first row alone of an
/// array of rows of such structs.
template <class T, Reduction reduction>
struct Total {
  T total;

  __device__ void clear() { total = nothing<reduction, T>(); }

  /// With what the result was before.
  __device__ T with(T before) const { return reduced<reduction, false>(before, total); }
};

/// A maximum, and the sum of the exponentials of the differences from `shift`: the maximum where it is finite.
template <class T>
struct Total<T, Reduction::kLogAddExp> {
  static constexpr T kNone = -std::numeric_limits<T>::infinity();
  T most, shift, sum;

  __device__ void clear() {
    most = kNone;
    shift = sum = 0;
  }

  __device__ void raise(T to) {
    if (to == most) return;
    most = to;
    const T next = isfinite(to) ? to : T(0);
    if (sum != 0) sum *= exp(shift - next);
    shift = next;
  }

  __device__ T with(T before) const {
    const T value = shift + log(sum);
    if (before == kNone) return value;
    const T larger_one = larger<false>(before, value);
    return isfinite(larger_one) ? larger_one + log(exp(before - larger_one) + exp(value - larger_one)) : larger_one;
  }
};

/// Calls `use(total, a join of two elements)` for each result of a thread and each of `depth` inner indices.
template <Join join, class T, class Each, class Use>
__device__ void for_each_join(T (&left)[kDepth][kTile], T (&right)[kDepth][kTile], int depth,
                              Each (&each)[kEach][kEach], Use use) {
  for (int d = 0; d < depth; ++d) {
#pragma unroll
    for (int i = 0; i < kEach * kEach; ++i) {
      const T x = left[d][threadIdx.y + i / kEach * kSide], y = right[d][threadIdx.x + i % kEach * kSide];
      use(each[i / kEach][i % kEach], combine<join, false>(x, y));
    }
  }
}

template <Join join, Reduction reduction, class T>
__device__ void reduce_depth(T (&left)[kDepth][kTile], T (&right)[kDepth][kTile], int depth,
                             Total<T, reduction> (&totals)[kEach][kEach]) {
  if constexpr (reduction == Reduction::kLogAddExp) {
    T most[kEach][kEach];
    for (int i = 0; i < kEach * kEach; ++i) most[i / kEach][i % kEach] = totals[i / kEach][i % kEach].most;
    for_each_join<join>(left, right, depth, most, [](T& to, T value) { to = larger<true>(to, value); });
    for (int i = 0; i < kEach * kEach; ++i) totals[i / kEach][i % kEach].raise(most[i / kEach][i % kEach]);
    for_each_join<join>(left, right, depth, totals, [](auto& to, T value) { to.sum += exp(value - to.shift); });
  } else {
    for_each_join<join>(left, right, depth, totals,
                        [](auto& to, T value) { to.total = reduced<reduction, false>(to.total, value); });
  }
}

/// Tiles of each index of the batch that the block has.
template <class T, Join join, Reduction reduction>
__global__ void reduce_tiles(const CudaProblem problem) {
  __shared__ T left[kDepth][kTile];
  __shared__ T right[kDepth][kTile];
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kTile;
  const int64_t high = (problem.rows + kTile - 1) / kTile;
  for (int64_t tile = blockIdx.y; tile < high * problem.batch; tile += gridDim.y) {
    const int64_t b = tile / high, row = tile % high * kTile;
    const T* a = static_cast<const T*>(problem.left) + b * problem.left_strides[0];
    const T* c = static_cast<const T*>(problem.right) + b * problem.right_strides[0];
    Total<T, reduction> totals[kEach][kEach];
    for (int i = 0; i < kEach * kEach; ++i) totals[i / kEach][i % kEach].clear();
    for (int64_t k = 0; k < problem.inner; k += kDepth) {
      load(left, a, row, problem.rows, problem.left_strides[1], k, problem.inner, problem.left_strides[2]);
      load(right, c, column, problem.columns, problem.right_strides[2], k, problem.inner, problem.right_strides[1]);
      __syncthreads();
      const int some = static_cast<int>(problem.inner - k < kDepth ? problem.inner - k : kDepth);
      reduce_depth<join, reduction>(left, right, some, totals);
      __syncthreads();
    }
    T* out = static_cast<T*>(problem.out) + b * problem.rows * problem.columns;
    for (int i = 0; i < kEach * kEach; ++i) {
      const int64_t r = row + threadIdx.y + i / kEach * kSide, col = column + threadIdx.x + i % kEach * kSide;
      if (r >= problem.rows || col >= problem.columns) continue;
      T& to = out[r * problem.columns + col];
      to = totals[i / kEach][i % kEach].with(to);
    }
  }
}

template <class T, Join join, Reduction reduction>
void start(const CudaProblem& problem) {
  const int64_t high = (problem.rows + kTile - 1) / kTile, wide = (problem.columns + kTile - 1) / kTile;
  const dim3 grid(static_cast<unsigned>(wide), static_cast<unsigned>(std::min(high * problem.batch, kMostBlocks)));
  reduce_tiles<T, join, reduction><<<grid, dim3(kSide, kSide), 0, static_cast<cudaStream_t>(problem.stream)>>>(problem);
}

template <class T>
void launch(const CudaProblem& problem) {
  with_constant(problem.join, [&](auto join) {
    constexpr Join kJoin = decltype(join)::value;
    constexpr bool kDivides = kJoin == Join::kDiv || kJoin == Join::kReversedDiv;
    if (problem.reduction == Reduction::kLogAddExp) {
      if constexpr (std::is_floating_point_v<T>) start<T, kJoin, Reduction::kLogAddExp>(problem);
      return 0;
    }
    return with_constant(problem.reduction, [&](auto reduction) {
      constexpr Reduction kReduction = decltype(reduction)::value;
      if constexpr (!(kJoin == Join::kMul && kReduction == Reduction::kAdd) && !(kDivides && std::is_integral_v<T>)) {
        start<T, kJoin, kReduction>(problem);
      }
      return 0;
    });
  });
  const cudaError_t error = cudaGetLastError();
  JOINSUM_KERNEL_CHECK(error == cudaSuccess, "contract: CUDA did not start the loops: ", cudaGetErrorString(error));
}

}  // namespace

bool cuda_takes(Type type, Reduction reduction) {
  if (type == Type::kFloat || type == Type::kDouble) return true;
  return (type == Type::kInt64 || type == Type::kInt32) && reduction != Reduction::kLogAddExp;
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

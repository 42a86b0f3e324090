#pragma once

#include "kernels/semiring/pair_tiles.h"

/// Included once by each source that compiles these loops for a set of instructions. All is local to it, so that no
/// linker gives one processor the code of another; hence no function of the standard library either.
namespace joinsum::kernels::semiring {
namespace {

/// Vectors of `bytes`; `Unaligned` ones lie anywhere.
template <class T, int bytes>
struct Vectors {
  typedef T Aligned __attribute__((vector_size(bytes)));
  typedef T Unaligned __attribute__((vector_size(bytes), aligned(alignof(T)), may_alias));
  static constexpr int64_t kLanes = bytes / static_cast<int64_t>(sizeof(T));
};

/// A tile of `kRows` rows, two vectors wide: enough sums to hide an operation's latency, few enough for the registers.
/// The panels are reduced by themselves first, which keeps long sums of floats accurate.
template <class T, Join join, Reduction reduction, bool ordered, int kRows, int bytes>
void tile(int64_t inner, const void* left, const void* right, void* const* rows) {
  using V = Vectors<T, bytes>;
  using Vector = typename V::Aligned;
  using Place = typename V::Unaligned;
  const T* a = static_cast<const T*>(left);
  const T* b = static_cast<const T*>(right);
  Vector total[kRows][2];
  for (auto& row : total) row[0] = row[1] = Vector{} + nothing<reduction, T>();
  for (int64_t k = 0; k < inner; ++k) {
    const Vector b0 = *reinterpret_cast<const Place*>(b);
    const Vector b1 = *reinterpret_cast<const Place*>(b + V::kLanes);
#if defined(__clang__)
#pragma clang loop unroll(full)
#else
#pragma GCC unroll 16
#endif
    for (int r = 0; r < kRows; ++r) {
      const Vector x = a[r] - Vector{};
      total[r][0] = reduced<reduction, ordered>(total[r][0], combine<join, ordered>(x, b0));
      total[r][1] = reduced<reduction, ordered>(total[r][1], combine<join, ordered>(x, b1));
    }
    a += kRows;
    b += 2 * V::kLanes;
  }
  for (int r = 0; r < kRows; ++r) {
    for (int half = 0; half < 2; ++half) {
      auto* to = reinterpret_cast<Place*>(static_cast<T*>(rows[r]) + half * V::kLanes);
      *to = reduced<reduction, ordered>(static_cast<Vector>(*to), total[r][half]);
    }
  }
}

template <class T, int kRows, int bytes>
Tiles tiles_of(Join given_join, Reduction given_reduction) {
  return with_constant(given_join, [&](auto join) {
    return with_constant(given_reduction, [&](auto reduction) {
      constexpr bool kUnsigned = std::is_unsigned_v<T> && join.value == Join::kAbsDifference;
      constexpr Join kJoin = kUnsigned ? Join::kUnsignedDifference : join.value;
      constexpr bool kFloats = std::is_floating_point_v<T>;
      constexpr bool kSelects = join.value == Join::kMax || join.value == Join::kMin ||
                                reduction.value == Reduction::kMax || reduction.value == Reduction::kMin;
      constexpr bool kAlike = !kFloats || !kSelects;
      constexpr bool kProduct = join.value == Join::kMul && reduction.value == Reduction::kAdd;
      constexpr bool kDivides = join.value == Join::kDiv || join.value == Join::kReversedDiv;
      // Products and sums are the vendor's, and integers are not divided.
      if constexpr (kProduct || (kDivides && !kFloats) || join.value == Join::kUnsignedDifference) {
        return Tiles{};
      } else {
        return Tiles{kRows,
                     2 * Vectors<T, bytes>::kLanes,
                     tile<T, kJoin, reduction.value, kAlike, kRows, bytes>,
                     tile<T, kJoin, reduction.value, true, kRows, bytes>,
                     tile<T, kJoin, reduction.value, kAlike, 1, bytes>,
                     tile<T, kJoin, reduction.value, true, 1, bytes>};
      }
    });
  });
}

}  // namespace
}  // namespace joinsum::kernels::semiring

#pragma once

#include "kernels/semiring/pair_exponential.h"

/// Loops over tiles whose elements are two numbers each.
namespace joinsum::kernels::semiring {
namespace {

/// The panels' maxima first, then the exponentials relative to them.
template <class T, Join join, bool ordered, int kRows, int bytes>
void log_tile(int64_t inner, const void* left, const void* right, void* const* rows) {
  using V = Vectors<T, bytes>;
  using Vector = typename V::Aligned;
  using Place = typename V::Unaligned;
  constexpr T kLeast = -std::numeric_limits<T>::infinity();
  Vector before[kRows][2];
  for (int r = 0; r < kRows; ++r) {
    for (int half = 0; half < 2; ++half) {
      before[r][half] = *reinterpret_cast<const Place*>(static_cast<const T*>(rows[r]) + half * V::kLanes);
    }
  }
  tile<T, join, Reduction::kMax, ordered, kRows, bytes>(inner, left, right, rows);
  for (int r = 0; r < kRows; ++r) {
    const T* maxima = static_cast<const T*>(rows[r]);
    T* sums = static_cast<T*>(rows[kRows + r]);
    Vector most[2], total[2];
    for (int half = 0; half < 2; ++half) {
      const Vector now = *reinterpret_cast<const Place*>(maxima + half * V::kLanes);
      const Vector old = before[r][half];
      const Vector sum = *reinterpret_cast<const Place*>(sums + half * V::kLanes);
      // Relative to -inf there would be no numbers; elements that equal it count 0 relative to anything.
      most[half] = now == kLeast ? Vector{} : now;
      total[half] = old == now ? sum : sum * exponential<T, bytes>(old - most[half]);
    }
    const T* a = static_cast<const T*>(left) + r;
    const T* b = static_cast<const T*>(right);
    for (int64_t k = 0; k < inner; ++k, a += kRows, b += 2 * V::kLanes) {
      const Vector x = *a - Vector{};
      for (int half = 0; half < 2; ++half) {
        const Vector y = *reinterpret_cast<const Place*>(b + half * V::kLanes);
        total[half] += exponential<T, bytes>(combine<join, ordered>(x, y) - most[half]);
      }
    }
    for (int half = 0; half < 2; ++half) *reinterpret_cast<Place*>(sums + half * V::kLanes) = total[half];
  }
}

template <class T, int kRows, int bytes>
Tiles log_tiles(Join given_join) {
  return with_constant(given_join, [&](auto join) {
    if constexpr (join.value == Join::kUnsignedDifference) {
      return Tiles{};
    } else {
      return Tiles{kRows,
                   2 * Vectors<T, bytes>::kLanes,
                   log_tile<T, join.value, false, kRows, bytes>,
                   log_tile<T, join.value, true, kRows, bytes>,
                   log_tile<T, join.value, false, 1, bytes>,
                   log_tile<T, join.value, true, 1, bytes>,
                   2};
    }
  });
}

// --- complex numbers -------------------------------------------------------------------------------------------------

template <class V>
struct Complex {
  V real;
  V imaginary;
};

template <class V>
JOINSUM_INLINE Complex<V> product(const Complex<V>& a, const Complex<V>& b) {
  return {a.real * b.real - a.imaginary * b.imaginary, a.real * b.imaginary + a.imaginary * b.real};
}

/// Scaled by the larger part of `b`, so that its square neither overflows nor vanishes.
template <class V>
JOINSUM_INLINE Complex<V> quotient(const Complex<V>& a, const Complex<V>& b) {
  const V real = larger<true>(b.real, -b.real), imaginary = larger<true>(b.imaginary, -b.imaginary);
  const V scale = real > imaginary ? real : imaginary;
  const Complex<V> c{b.real / scale, b.imaginary / scale};
  const V square = (c.real * c.real + c.imaginary * c.imaginary) * scale;
  return {(a.real * c.real + a.imaginary * c.imaginary) / square,
          (a.imaginary * c.real - a.real * c.imaginary) / square};
}

template <Join join, class V>
JOINSUM_INLINE Complex<V> combine(const Complex<V>& a, const Complex<V>& b) {
  if constexpr (join == Join::kMul) return product(a, b);
  if constexpr (join == Join::kAdd) return {a.real + b.real, a.imaginary + b.imaginary};
  if constexpr (join == Join::kReversedSub) return {b.real - a.real, b.imaginary - a.imaginary};
  if constexpr (join == Join::kDiv) return quotient(a, b);
  if constexpr (join == Join::kReversedDiv) return quotient(b, a);
  const Complex<V> difference{a.real - b.real, a.imaginary - b.imaginary};
  if constexpr (join == Join::kSub) return difference;
  if constexpr (join == Join::kSquaredDifference) return product(difference, difference);
}

template <Reduction reduction, class V>
JOINSUM_INLINE Complex<V> reduced(const Complex<V>& total, const Complex<V>& value) {
  return combine<reduction == Reduction::kAdd ? Join::kAdd : Join::kMul>(total, value);
}

template <class T, Join join, Reduction reduction, int kRows, int bytes>
void complex_tile(int64_t inner, const void* left, const void* right, void* const* rows) {
  using V = Vectors<T, bytes>;
  using Vector = typename V::Aligned;
  using Place = typename V::Unaligned;
  const auto at = [](const T* place) -> Vector { return *reinterpret_cast<const Place*>(place); };
  const T* a = static_cast<const T*>(left);
  const T* b = static_cast<const T*>(right);
  Complex<Vector> total[kRows][2];
  for (auto& row : total) row[0] = row[1] = {Vector{} + nothing<reduction, T>(), Vector{}};
  for (int64_t k = 0; k < inner; ++k) {
    for (int half = 0; half < 2; ++half) {
      const Complex<Vector> y{at(b + half * V::kLanes), at(b + (2 + half) * V::kLanes)};
#if defined(__clang__)
#pragma clang loop unroll(full)
#else
#pragma GCC unroll 16
#endif
      for (int r = 0; r < kRows; ++r) {
        const Complex<Vector> x{Vector{} + a[r], Vector{} + a[kRows + r]};
        total[r][half] = reduced<reduction>(total[r][half], combine<join>(x, y));
      }
    }
    a += 2 * kRows;
    b += 4 * V::kLanes;
  }
  for (int r = 0; r < kRows; ++r) {
    for (int half = 0; half < 2; ++half) {
      auto* real = reinterpret_cast<Place*>(static_cast<T*>(rows[r]) + half * V::kLanes);
      auto* imaginary = reinterpret_cast<Place*>(static_cast<T*>(rows[kRows + r]) + half * V::kLanes);
      const Complex<Vector> sum =
          reduced<reduction>({static_cast<Vector>(*real), static_cast<Vector>(*imaginary)}, total[r][half]);
      *real = sum.real;
      *imaginary = sum.imaginary;
    }
  }
}

/// Not for reductions and joins that need an order.
template <class T, int kRows, int bytes>
Tiles complex_tiles(Join given_join, Reduction given_reduction) {
  return with_constant(given_join, [&](auto join) {
    return with_constant(given_reduction, [&](auto reduction) {
      constexpr bool kSums = reduction.value == Reduction::kAdd || reduction.value == Reduction::kMul;
      constexpr bool kOrders = join.value == Join::kMax || join.value == Join::kMin ||
                               join.value == Join::kAbsDifference || join.value == Join::kUnsignedDifference;
      constexpr bool kProduct = join.value == Join::kMul && reduction.value == Reduction::kAdd;
      if constexpr (!kSums || kOrders || kProduct) {
        return Tiles{};
      } else {
        constexpr Tile kTile = complex_tile<T, join.value, reduction.value, kRows, bytes>;
        constexpr Tile kRow = complex_tile<T, join.value, reduction.value, 1, bytes>;
        return Tiles{kRows, 2 * Vectors<T, bytes>::kLanes, kTile, kTile, kRow, kRow, 2};
      }
    });
  });
}

}  // namespace
}  // namespace joinsum::kernels::semiring

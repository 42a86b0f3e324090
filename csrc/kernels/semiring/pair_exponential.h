#pragma once

#include "kernels/semiring/pair_tile_loops.h"

/// Exponentials of vectors.
namespace joinsum::kernels::semiring {
namespace {

/// What e^x is computed with: x = n log(2) + r, |r| <= log(2) / 2.
template <class T>
struct ExponentialOf;

template <>
struct ExponentialOf<float> {
  using Bits = int32_t;
  static constexpr int kDigits = 23;
  static constexpr Bits kBias = 127;
  static constexpr int kDegree = 7;
  static constexpr float kLeast = -87;          ///< below it e^x counts as 0; e^-87 = 1.6e-38
  static constexpr float kRounds = 12582912;    ///< 1.5 * 2^23: numbers that are added to it are rounded to whole ones
  static constexpr float kHigh = 0.693359375F;  ///< log(2) of few digits, so that n times it is exact, and the rest
  static constexpr float kLow = -2.12194440e-4F;
};

template <>
struct ExponentialOf<double> {
  using Bits = int64_t;
  static constexpr int kDigits = 52;
  static constexpr Bits kBias = 1023;
  static constexpr int kDegree = 13;
  static constexpr double kLeast = -708;  ///< e^-708 = 3.3e-308
  static constexpr double kRounds = 6755399441055744.0;
  static constexpr double kHigh = 6.93145751953125e-1;
  static constexpr double kLow = 1.42860682030941723212e-6;
};

/// e^x for x <= 0, within 2 units in the last place; not a number where x is not. Taylor's series, whose rest is below
/// half a unit.
template <class T, int bytes>
JOINSUM_INLINE typename Vectors<T, bytes>::Aligned exponential(typename Vectors<T, bytes>::Aligned x) {
  using E = ExponentialOf<T>;
  using Vector = typename Vectors<T, bytes>::Aligned;
  using Whole = typename Vectors<typename E::Bits, bytes>::Aligned;
  constexpr T kPerLog2 = T(1.44269504088896340736);
  const Vector shifted = x * kPerLog2 + E::kRounds;
  const Vector n = shifted - E::kRounds;
  const Vector r = (x - n * E::kHigh) - n * E::kLow;
  T factorial = 1;
  for (int k = 2; k <= E::kDegree; ++k) factorial *= T(k);
  Vector sum = Vector{} + T(1) / factorial;
#if defined(__clang__)
#pragma clang loop unroll(full)
#else
#pragma GCC unroll 16
#endif
  for (int k = E::kDegree; k > 0; --k) {
    factorial /= T(k);
    sum = sum * r + T(1) / factorial;
  }
  // The last digits of `shifted` are n, which becomes the exponent of 2^n.
  const Vector power = (Vector)(((Whole)shifted << E::kDigits) + (E::kBias << E::kDigits));
  return x < E::kLeast ? Vector{} : sum * power;
}

}  // namespace
}  // namespace joinsum::kernels::semiring

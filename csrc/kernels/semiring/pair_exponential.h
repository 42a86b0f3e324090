#pragma once

#if defined(__AVX2__)
#include <immintrin.h>
#endif

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

#if defined(__AVX512DQ__)
/// 2^y on [-1/2, 1/2], highest power first: 1 for 0, and errors below a unit in the last place (Chebyshev's series of
/// (2^y - 1) / y).
constexpr float kPowers32[] = {
    1.54531629e-4F, 1.33908634e-3F, 9.61808256e-3F, 5.55035711e-2F, 2.40226508e-1F, 6.93147188e-1F, 1};
constexpr double kPowers64[] = {4.4549605981865183938e-10, 7.0725859492692236999e-9, 1.0178062445845773521e-7,
                                1.3215442587921689653e-6,  1.5252733829836118394e-5, 1.5403530441736050155e-4,
                                1.333355814641693531e-3,   9.6181291076068885273e-3, 5.5504108664821594339e-2,
                                2.402265069591009822e-1,   6.9314718055994530942e-1, 1};

/// e^x for any x by instructions that split a number and scale by a power of two.
JOINSUM_INLINE __m512 wide_exponential(__m512 x) {
  const __m512 y = x * 1.44269504088896340736F;
  const __m512 rest = _mm512_maskz_reduce_ps(0xFFFF, y, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m512 sum = _mm512_set1_ps(kPowers32[0]);
  for (int i = 1; i < 7; ++i) sum = sum * rest + kPowers32[i];
  return _mm512_maskz_scalef_ps(0xFFFF, sum, y - rest);
}

JOINSUM_INLINE __m512d wide_exponential(__m512d x) {
  const __m512d y = x * 1.44269504088896340736;
  const __m512d rest = _mm512_maskz_reduce_pd(0xFF, y, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m512d sum = _mm512_set1_pd(kPowers64[0]);
  for (int i = 1; i < 12; ++i) sum = sum * rest + kPowers64[i];
  return _mm512_maskz_scalef_pd(0xFF, sum, y - rest);
}
#endif

/// e^x for x <= 0, within 2 units in the last place; not a number where x is not. Taylor's series, whose rest is below
/// half a unit.
template <class T, int bytes>
JOINSUM_INLINE typename Vectors<T, bytes>::Aligned exponential(typename Vectors<T, bytes>::Aligned x) {
  using E = ExponentialOf<T>;
  using Vector = typename Vectors<T, bytes>::Aligned;
  using Whole = typename Vectors<typename E::Bits, bytes>::Aligned;
#if defined(__AVX512DQ__)
  if constexpr (bytes == 64) return wide_exponential(x);
#endif
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

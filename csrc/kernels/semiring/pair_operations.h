#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#if defined(__CUDACC__)
#define JOINSUM_INLINE __host__ __device__ __forceinline__
#else
#define JOINSUM_INLINE inline __attribute__((always_inline))
#endif

/// The operations that contractions by other pairs than (mul, add) are made of, for the loops of all processors: `V` is
/// a number, or a vector of the compiler's, which works on each of its elements.
namespace joinsum::kernels::semiring {

/// How two elements are combined. The reversed ones serve contractions whose operands change places.
enum class Join {
  kMul,
  kAdd,
  kSub,
  kReversedSub,
  kDiv,
  kReversedDiv,
  kMax,
  kMin,
  kSquaredDifference,
  kAbsDifference,
  kUnsignedDifference  ///< kAbsDifference of unsigned integers, whose differences wrap around
};

/// kLogAddExp, log(eᵃ + eᵇ), has no step of its own: loops keep a maximum and a sum of exponentials.
enum class Reduction { kAdd, kMul, kMax, kMin, kLogAddExp };

/// Elements that the loops take. Those of complex numbers work on real and imaginary parts.
enum class Type { kFloat, kDouble, kInt64, kInt32, kInt16, kInt8, kUInt8, kComplexFloat, kComplexDouble };

constexpr bool is_complex(Type type) { return type == Type::kComplexFloat || type == Type::kComplexDouble; }

/// The larger of `a` and `b`. As torch, not a number when one of them is not; with `ordered` only when `a` is not,
/// which is one instruction of many processors in place of four.
template <bool ordered, class V>
JOINSUM_INLINE V larger(V a, V b) {
  if constexpr (ordered) return b > a ? b : a;
  return ((b > a) | (b != b)) ? b : a;
}

template <bool ordered, class V>
JOINSUM_INLINE V smaller(V a, V b) {
  if constexpr (ordered) return b < a ? b : a;
  return ((b < a) | (b != b)) ? b : a;
}

/// |x| of a floating number, or of integers' vectors.
template <class V>
JOINSUM_INLINE V magnitude(V x) {
#if !defined(__CUDACC__)
  if constexpr (!std::is_arithmetic_v<V>) {
    using Number = std::remove_cvref_t<decltype(x[0])>;
    using Bits = decltype(x < x);
    // Without the sign's bit.
    if constexpr (std::is_floating_point_v<Number>) return (V)((Bits)x & ~(Bits)(-V{}));
  }
#endif
  // Not `-x`: the opposite of 0 is 0, and |-0| is 0 too.
  return larger<true>(V(0 - x), x);
}

template <Join join, bool ordered, class V>
JOINSUM_INLINE V combine(V a, V b) {
  if constexpr (join == Join::kMul) return V(a * b);
  if constexpr (join == Join::kAdd) return V(a + b);
  if constexpr (join == Join::kSub) return V(a - b);
  if constexpr (join == Join::kReversedSub) return V(b - a);
  if constexpr (join == Join::kDiv) return V(a / b);
  if constexpr (join == Join::kReversedDiv) return V(b / a);
  if constexpr (join == Join::kMax) return larger<ordered>(a, b);
  if constexpr (join == Join::kMin) return smaller<ordered>(a, b);
  if constexpr (join == Join::kUnsignedDifference) return V(larger<true>(a, b) - smaller<true>(a, b));
  const V difference = V(a - b);
  if constexpr (join == Join::kSquaredDifference) return V(difference * difference);
  // Not as below: for Hopper, ptxas 13.0 compiles the maximum of `-d`, `d` and a third integer to that of the last two.
  if constexpr (join == Join::kAbsDifference && std::is_integral_v<V>)
    return difference < 0 ? V(0 - difference) : difference;
  if constexpr (join == Join::kAbsDifference) return magnitude(difference);
}

/// `total`, with one more value reduced into it.
template <Reduction reduction, bool ordered, class V>
JOINSUM_INLINE V reduced(V total, V value) {
  if constexpr (reduction == Reduction::kAdd) return V(total + value);
  if constexpr (reduction == Reduction::kMul) return V(total * value);
  if constexpr (reduction == Reduction::kMax) return larger<ordered>(total, value);
  if constexpr (reduction == Reduction::kMin) return smaller<ordered>(total, value);
}

/// What a reduction of nothing gives.
template <Reduction reduction, class T>
constexpr T nothing() {
  using Limits = std::numeric_limits<T>;
  if (reduction == Reduction::kAdd) return T(0);
  if (reduction == Reduction::kMul) return T(1);
  if (reduction == Reduction::kMax) return Limits::has_infinity ? T(-Limits::infinity()) : Limits::lowest();
  return Limits::has_infinity ? Limits::infinity() : Limits::max();
}

/// Calls `use(constant)` with a std::integral_constant of `join`, and gives what it gives.
template <class Use>
constexpr auto with_constant(Join join, Use use) {
  switch (join) {
    case Join::kMul:
      return use(std::integral_constant<Join, Join::kMul>());
    case Join::kAdd:
      return use(std::integral_constant<Join, Join::kAdd>());
    case Join::kSub:
      return use(std::integral_constant<Join, Join::kSub>());
    case Join::kReversedSub:
      return use(std::integral_constant<Join, Join::kReversedSub>());
    case Join::kDiv:
      return use(std::integral_constant<Join, Join::kDiv>());
    case Join::kReversedDiv:
      return use(std::integral_constant<Join, Join::kReversedDiv>());
    case Join::kMax:
      return use(std::integral_constant<Join, Join::kMax>());
    case Join::kMin:
      return use(std::integral_constant<Join, Join::kMin>());
    case Join::kSquaredDifference:
      return use(std::integral_constant<Join, Join::kSquaredDifference>());
    case Join::kUnsignedDifference:
      return use(std::integral_constant<Join, Join::kUnsignedDifference>());
    case Join::kAbsDifference:
      break;
  }
  return use(std::integral_constant<Join, Join::kAbsDifference>());
}

/// The same for a reduction that has a step: not kLogAddExp.
template <class Use>
constexpr auto with_constant(Reduction reduction, Use use) {
  switch (reduction) {
    case Reduction::kAdd:
      return use(std::integral_constant<Reduction, Reduction::kAdd>());
    case Reduction::kMul:
      return use(std::integral_constant<Reduction, Reduction::kMul>());
    case Reduction::kMax:
      return use(std::integral_constant<Reduction, Reduction::kMax>());
    case Reduction::kMin:
    case Reduction::kLogAddExp:
      break;
  }
  return use(std::integral_constant<Reduction, Reduction::kMin>());
}

}  // namespace joinsum::kernels::semiring

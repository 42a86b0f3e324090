#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "sparse/operators/exponential.h"

/// The operators of sparse programs: what maps apply to values and aggregates reduce by, with the laws that rewriting
/// asks.
namespace joinsum::sparse::operators {

enum class Operator : uint8_t {
  kAdd,
  kMultiply,
  kSubtract,
  kDivide,
  kMin,
  kMax,
  kAnd,
  kOr,
  kEqual,
  kGreater,
  kPower,
  kLogAddExp,
  kExp,
  kNegate,
  kSquare,
  kSqrt,
  kSigmoid,
  kRelu,
  kAbs,
  kLog
};

/// All operators, in the order of the enumeration.
const std::vector<Operator>& all_operators();

/// The name that programs write: `+`, `*`, `min`, `exp`, ...
const std::string& name_of(Operator op);
std::optional<Operator> operator_from_name(const std::string& name);

/// Whether a map by `op` may have `count` children: one, two, or any number from one on where it is associative.
bool takes(Operator op, size_t count);
/// Whether aggregates may reduce by it: `+ * min max and or logaddexp`.
bool aggregates(Operator op);

bool is_associative(Operator op);
bool is_commutative(Operator op);
/// op(x, x) = x; for `and` and `or` of truth values.
bool is_idempotent(Operator op);
/// e with op(x, e) = x, of an operator that aggregates.
double identity_of(Operator op);
/// Whether op(..., value, ...) = value whatever the other children are: `*` 0, `+` ±∞, `min` −∞, `max` and `logaddexp`
/// ∞, `and` 0, `or` 1 (any truth). Zero times an infinity counts as zero: an entry that is not stored annihilates.
bool annihilates(Operator op, double value);
/// Whether `map` distributes over the aggregate `over` in each child, the others held fixed: f(a ⊕ b) = f(a) ⊕ f(b).
/// `*` over min and max only for factors that are not negative, which `factors_not_negative` says.
bool distributes(Operator map, Operator over, bool factors_not_negative = false);

/// The larger (smaller) number; not a number where one of them is not, as in torch.
template <class T>
T larger(T a, T b) {
  return (b > a || b != b) ? b : a;
}
template <class T>
T smaller(T a, T b) {
  return (b < a || b != b) ? b : a;
}

/// log(eᵃ + eᵇ) from the larger number, so that nothing overflows.
template <class R>
R log_add_exp(R a, R b) {
  const R most = larger(a, b);
  return std::isinf(most) ? most : most + std::log1p(exponential(smaller(a, b) - most));
}

/// Where sums, differences and products of T are computed: those of signed integers overflow, those of unsigned ones
/// wrap around.
template <class T>
using Wrapping = std::conditional_t<std::is_integral_v<T> && !std::is_same_v<T, bool>, uint64_t, T>;

/// In which values of a type that are no whole numbers are computed.
template <class T>
using Real = std::conditional_t<std::is_same_v<T, float>, float, double>;

/// The value of an operator of two children, or of the first two of a longer map.
template <class T>
T apply(Operator op, T a, T b) {
  using W = Wrapping<T>;
  switch (op) {
    case Operator::kAdd:
      return T(W(a) + W(b));
    case Operator::kMultiply:
      return T(W(a) * W(b));
    case Operator::kSubtract:
      return T(W(a) - W(b));
    case Operator::kDivide:
      return T(a / b);
    case Operator::kMin:
      return smaller(a, b);
    case Operator::kMax:
      return larger(a, b);
    case Operator::kAnd:
      return T(a != T(0) && b != T(0));
    case Operator::kOr:
      return T(a != T(0) || b != T(0));
    case Operator::kEqual:
      return T(a == b);
    case Operator::kGreater:
      return T(a > b);
    case Operator::kPower:
      return T(std::pow(a, b));
    case Operator::kLogAddExp:
      return T(log_add_exp(Real<T>(a), Real<T>(b)));
    default:
      return a;
  }
}

/// The value of an operator of one child. A map of one child by `+`, `*`, `min`, `max` or `logaddexp` is the
/// child, by `and` or `or` its truth.
template <class T>
T apply(Operator op, T a) {
  using W = Wrapping<T>;
  switch (op) {
    case Operator::kAnd:
    case Operator::kOr:
      return T(a != T(0));
    case Operator::kExp:
      return T(exponential(Real<T>(a)));
    case Operator::kNegate:
      return T(-W(a));
    case Operator::kSquare:
      return T(W(a) * W(a));
    case Operator::kSqrt:
      return T(std::sqrt(a));
    case Operator::kSigmoid:
      return T(sigmoid(Real<T>(a)));
    case Operator::kRelu:
      return larger(a, T(0));
    case Operator::kAbs:
      return a < T(0) ? T(-W(a)) : a;
    case Operator::kLog:
      return T(std::log(a));
    default:
      return a;
  }
}

}  // namespace joinsum::sparse::operators

#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>

#include "base/check.h"
#include "sparse/operators/operators.h"

/// Operators on the elements of a dtype; bool is the C++ type, whose sums and products are `or` and `and`.
namespace joinsum::sparse::kernels::nest {

using operators::Operator;

/// A number of the program as a dtype has it: integers are cut to their range and lose their fraction.
template <class T>
T value_of(double value) {
  using Limits = std::numeric_limits<T>;
  if constexpr (std::is_same_v<T, bool>) {
    return value != 0 && value != -std::numeric_limits<double>::infinity();
  } else if constexpr (std::is_integral_v<T>) {
    if (!(value > static_cast<double>(Limits::min()))) return value == value ? Limits::min() : T(0);
    return value >= static_cast<double>(Limits::max()) ? Limits::max() : static_cast<T>(value);
  } else {
    return static_cast<T>(value);
  }
}

/// A value as the fill of a tensor; the largest i64 is rounded down to a double that i64 has.
template <class T>
double fill_from(T value) {
  if constexpr (std::is_same_v<T, int64_t>) {
    constexpr int64_t kLargest = std::numeric_limits<int64_t>::max() - 1023;
    return static_cast<double>(std::min(value, kLargest));
  } else {
    return static_cast<double>(value);
  }
}

/// x^n by squaring, for integers.
template <class T>
T integer_power(T x, double n) {
  T result(1);
  for (; n >= 1; n = std::floor(n / 2)) {
    if (std::fmod(n, 2) == 1) result = T(result * x);
    x = T(x * x);
  }
  return result;
}

/// As `apply`. An integer divided by zero is zero; powers of integers are exact.
template <class T>
T applied(Operator op, T a, T b) {
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    if (op == Operator::kDivide) {
      if (b == T(0)) return T(0);
      if (std::is_signed_v<T> && b == T(-1)) return T(0 - static_cast<std::make_unsigned_t<T>>(a));
      return T(a / b);
    }
    if (op == Operator::kPower && b >= T(0)) return integer_power(a, static_cast<double>(b));
  } else if constexpr (std::is_same_v<T, bool>) {
    if (op == Operator::kDivide) return a && b;
  }
  return apply(op, a, b);
}

template <class T>
T identity_in(Operator op) {
  return value_of<T>(identity_of(op));
}

/// op(x, ..., x) of n equal values in the arithmetic of T; the identity for none.
template <class T>
T repeated_in(Operator op, T x, double n) {
  if (n == 0) return identity_in<T>(op);
  if (op == Operator::kAnd || op == Operator::kOr) return T(x != T(0));
  if (op == Operator::kAdd) {
    if constexpr (std::is_same_v<T, bool>) return x;
    if constexpr (std::is_integral_v<T>) return T(x * static_cast<T>(static_cast<int64_t>(std::fmod(n, 0x1p62))));
    return T(static_cast<double>(x) * n);
  }
  if (op == Operator::kMultiply) {
    if constexpr (std::is_integral_v<T>) return integer_power(x, n);
    return T(std::pow(static_cast<double>(x), n));
  }
  return x;
}

/// Calls `visit` with the operator as a constant, so that its loops are compiled apart.
template <class Visit>
decltype(auto) with_operator(Operator op, Visit&& visit) {
  using enum Operator;
  switch (op) {
#define JOINSUM_OPERATOR(name) \
  case name:                   \
    return visit(std::integral_constant<Operator, name>{});
    JOINSUM_OPERATOR(kSubtract)
    JOINSUM_OPERATOR(kMultiply)
    JOINSUM_OPERATOR(kDivide)
    JOINSUM_OPERATOR(kMin)
    JOINSUM_OPERATOR(kMax)
    JOINSUM_OPERATOR(kAnd)
    JOINSUM_OPERATOR(kOr)
    JOINSUM_OPERATOR(kEqual)
    JOINSUM_OPERATOR(kGreater)
    JOINSUM_OPERATOR(kPower)
    JOINSUM_OPERATOR(kExp)
    JOINSUM_OPERATOR(kNegate)
    JOINSUM_OPERATOR(kSquare)
    JOINSUM_OPERATOR(kSqrt)
    JOINSUM_OPERATOR(kSigmoid)
    JOINSUM_OPERATOR(kRelu)
    JOINSUM_OPERATOR(kAbs)
    JOINSUM_OPERATOR(kLog)
#undef JOINSUM_OPERATOR
    default:
      return visit(std::integral_constant<Operator, kAdd>{});
  }
}

/// Takes the only value, where nothing is aggregated.
struct Assign {
  template <class T>
  static T reduced(T, T value) {
    return value;
  }
};

template <Operator kOp>
struct Reduce {
  template <class T>
  static T reduced(T a, T b) {
    return applied(kOp, a, b);
  }
};

/// The same by an operator that is known at run time.
struct ReduceBy {
  std::optional<Operator> op;

  template <class T>
  T reduced(T a, T b) const {
    return op ? applied(*op, a, b) : b;
  }
};

/// Calls `visit` with `Reduce<op>` of an operator that aggregates, or with `Assign`.
template <class Visit>
decltype(auto) with_reduction(const std::optional<Operator>& op, Visit&& visit) {
  using enum Operator;
  if (!op) return visit(Assign{});
  switch (*op) {
    case kMultiply:
      return visit(Reduce<kMultiply>{});
    case kMin:
      return visit(Reduce<kMin>{});
    case kMax:
      return visit(Reduce<kMax>{});
    case kAnd:
      return visit(Reduce<kAnd>{});
    case kOr:
      return visit(Reduce<kOr>{});
    default:
      return visit(Reduce<kAdd>{});
  }
}

}  // namespace joinsum::sparse::kernels::nest

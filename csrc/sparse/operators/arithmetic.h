#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "base/check.h"
#include "sparse/operators/operators.h"

/// Operators on the elements of a dtype; bool is the C++ type, whose sums and products are `or` and `and`.
namespace joinsum::sparse::operators {

/// A number of the program as a dtype has it: integers lose the fraction and wrap around, and an infinity is the least
/// or the largest one.
template <class T>
T value_of(double value) {
  using Limits = std::numeric_limits<T>;
  if constexpr (std::is_same_v<T, bool>) {
    return value != 0 && value != -std::numeric_limits<double>::infinity();
  } else if constexpr (std::is_integral_v<T>) {
    if (std::isnan(value)) return T(0);
    if (std::isinf(value)) return value > 0 ? Limits::max() : Limits::min();
    const double wrapped = std::fmod(std::trunc(value), 0x1p64);
    // Of negative numbers the remainder by 2^64.
    const uint64_t bits = wrapped < 0 ? 0 - static_cast<uint64_t>(-wrapped) : static_cast<uint64_t>(wrapped);
    return static_cast<T>(bits);
  } else {
    return static_cast<T>(value);
  }
}

/// A value as the fill of a tensor. The largest i64 is rounded down to a double that i64 has; raises PlanError for
/// others that no double is.
template <class T>
double fill_from(T value) {
  if constexpr (std::is_same_v<T, int64_t>) {
    constexpr int64_t kMost = std::numeric_limits<int64_t>::max(), kLargest = kMost - 1023;
    if (value == kMost) return static_cast<double>(kLargest);
    const auto fill = static_cast<double>(value);
    JOINSUM_USER_CHECK(value <= kLargest && static_cast<int64_t>(fill) == value,
                       "sparse tensor: the fill of a result is a whole number that no float64 is: fill=", value);
    return fill;
  } else {
    return static_cast<double>(value);
  }
}

/// x^n by squaring, for integers.
template <class T>
T integer_power(T x, double n) {
  T result(1);
  for (; n >= 1; n = std::floor(n / 2)) {
    if (std::fmod(n, 2) == 1) result = apply(Operator::kMultiply, result, x);
    x = apply(Operator::kSquare, x);
  }
  return result;
}

/// As `apply`. An integer divided by zero is zero; powers of integers are exact.
template <class T>
T applied(Operator op, T a, T b) {
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    if (op == Operator::kDivide) {
      if (b == T(0)) return T(0);
      if (std::is_signed_v<T> && b == T(-1)) return apply(Operator::kNegate, a);
      return T(a / b);
    }
    if (op == Operator::kPower && b >= T(0)) return integer_power(a, static_cast<double>(b));
  } else if constexpr (std::is_same_v<T, bool>) {
    if (op == Operator::kDivide) return a && b;
  }
  return apply(op, a, b);
}

template <class T>
T applied(Operator op, T a) {
  return apply(op, a);
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
    if constexpr (std::is_integral_v<T>)
      return apply(Operator::kMultiply, x, static_cast<T>(static_cast<uint64_t>(std::fmod(n, 0x1p63))));
    return T(static_cast<double>(x) * n);
  }
  if (op == Operator::kMultiply) {
    if constexpr (std::is_integral_v<T>) return integer_power(x, n);
    return T(std::pow(static_cast<double>(x), n));
  }
  if (op == Operator::kLogAddExp) return T(static_cast<double>(x) + std::log(n));
  return x;
}

}  // namespace joinsum::sparse::operators

#pragma once

#include <functional>
#include <random>

#include "relation/key_samples.h"

namespace joinsum::relation {

// A value by the mathematics, in a width that the operations below cannot overflow; none where there is no value.
__extension__ typedef __int128 Wide;
using Naive = std::function<std::optional<int64_t>(const Key&, int64_t)>;

struct Generated {
  KeyExpression expression;
  Naive naive;
};

inline std::optional<int64_t> narrow(Wide value) {
  if (value < kLowest || value > kHighest) return std::nullopt;
  return static_cast<int64_t>(value);
}

inline std::optional<Wide> naive_floor(Wide a, Wide b) {
  if (b == 0) return std::nullopt;
  Wide quotient = a / b;
  while (b > 0 ? quotient * b > a : quotient * b < a) --quotient;
  return quotient;
}

inline std::optional<int64_t> naive_binary(KeyOperator op, Wide a, Wide b) {
  const std::optional<Wide> floor = naive_floor(a, b);
  switch (op) {
    case KeyOperator::kAdd:
      return narrow(a + b);
    case KeyOperator::kSubtract:
      return narrow(a - b);
    case KeyOperator::kMultiply:
      return narrow(a * b);
    case KeyOperator::kDivide:
      return floor ? narrow(*floor) : std::nullopt;
    case KeyOperator::kModulo:
      return floor ? narrow(a - *floor * b) : std::nullopt;
    case KeyOperator::kEqual:
      return a == b;
    case KeyOperator::kNotEqual:
      return a != b;
    case KeyOperator::kLess:
      return a < b;
    case KeyOperator::kLessEqual:
      return a <= b;
    case KeyOperator::kGreater:
      return a > b;
    case KeyOperator::kGreaterEqual:
      return a >= b;
    default:
      return std::nullopt;
  }
}

/// Draws expressions together with their value by an independent reading.
class Generator {
 public:
  explicit Generator(uint64_t seed) : random_(seed) {}

  int64_t below(int64_t limit) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(limit)); }
  Generated any(int64_t depth) { return below(3) == 0 ? boolean(depth) : integer(depth); }
  Key key() { return {below(5), below(5), below(5)}; }

  Generated integer(int64_t depth) {
    if (depth == 0 || below(8) == 0) return integer_leaf();
    if (below(8) == 0) return lookup(depth);
    if (below(6) == 0) {
      const Generated a = integer(depth - 1);
      return {negated(a.expression), [a](const Key& key, int64_t m) -> std::optional<int64_t> {
                const auto value = a.naive(key, m);
                return value ? narrow(-Wide{*value}) : std::nullopt;
              }};
    }
    constexpr KeyOperator kOps[] = {KeyOperator::kAdd, KeyOperator::kSubtract, KeyOperator::kMultiply,
                                    KeyOperator::kDivide, KeyOperator::kModulo};
    return on_integers(kOps[below(5)], depth);
  }

  Generated boolean(int64_t depth) {
    if (depth == 0 || below(8) == 0) {
      const bool truth = below(2) == 1;
      return {KeyExpression::truth(truth), [truth](const Key&, int64_t) { return std::optional<int64_t>(truth); }};
    }
    if (below(5) == 0) {
      const Generated a = boolean(depth - 1);
      return {KeyExpression::unary(KeyOperator::kNot, a.expression),
              [a](const Key& key, int64_t m) -> std::optional<int64_t> {
                const auto value = a.naive(key, m);
                return value ? std::optional<int64_t>(1 - *value) : std::nullopt;
              }};
    }
    if (below(2) == 0) return on_booleans(below(2) == 0, depth);
    constexpr KeyOperator kOps[] = {KeyOperator::kEqual,     KeyOperator::kNotEqual, KeyOperator::kLess,
                                    KeyOperator::kLessEqual, KeyOperator::kGreater,  KeyOperator::kGreaterEqual};
    return on_integers(kOps[below(6)], depth);
  }

 private:
  Generated integer_leaf() {
    if (below(6) == 0) return {KeyExpression::output(), [](const Key&, int64_t m) { return std::optional(m); }};
    if (below(2) == 0) {
      const int64_t dim = below(3);
      return {k(dim), [dim](const Key& key, int64_t) { return std::optional(key[dim]); }};
    }
    int64_t value = below(9) - 4;
    if (below(12) == 0) value = below(2) == 0 ? kLowest : kHighest;
    return {number(value), [value](const Key&, int64_t) { return std::optional(value); }};
  }

  Generated lookup(int64_t depth) {
    const Generated index = integer(depth - 1);
    return {KeyExpression::lookup(tables().at("owner"), index.expression),
            [index](const Key& key, int64_t m) -> std::optional<int64_t> {
              const auto at = index.naive(key, m);
              if (!at || *at < 0 || *at > 3) return std::nullopt;
              return *at == 0 ? 2 : *at == 1 ? 0 : *at == 2 ? 1 : 5;
            }};
  }

  Generated on_integers(KeyOperator op, int64_t depth) {
    const Generated a = integer(depth - 1);
    const Generated b = integer(below(depth));
    return {KeyExpression::binary(op, a.expression, b.expression),
            [op, a, b](const Key& key, int64_t m) -> std::optional<int64_t> {
              const auto left = a.naive(key, m);
              const auto right = b.naive(key, m);
              return left && right ? naive_binary(op, *left, *right) : std::nullopt;
            }};
  }

  Generated on_booleans(bool both, int64_t depth) {
    const Generated a = boolean(below(depth));
    const Generated b = boolean(depth - 1);
    return {KeyExpression::binary(both ? KeyOperator::kAnd : KeyOperator::kOr, a.expression, b.expression),
            [both, a, b](const Key& key, int64_t m) -> std::optional<int64_t> {
              const auto left = a.naive(key, m);
              if (!left || *left == (both ? 0 : 1)) return left;
              return b.naive(key, m);
            }};
  }

  std::mt19937_64 random_;
};

inline std::optional<int64_t> value_or_none(const KeyExpression& expression, const Key& key, int64_t m) {
  try {
    return expression.evaluate(key, m);
  } catch (const PlanError&) {
    return std::nullopt;
  }
}

}  // namespace joinsum::relation

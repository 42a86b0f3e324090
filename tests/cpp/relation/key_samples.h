#pragma once

#include <limits>

#include <gtest/gtest.h>

#include "relation/key_expression.h"

namespace joinsum::relation {

inline constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();
inline constexpr int64_t kHighest = std::numeric_limits<int64_t>::max();

inline std::shared_ptr<const LookupTable> table(const std::string& name, std::vector<int64_t> values) {
  return std::make_shared<const LookupTable>(LookupTable{name, std::move(values)});
}

inline const LookupTables& tables() {
  static const LookupTables all{{"owner", table("owner", {2, 0, 1, 5})}, {"or", table("or", {-7, 7})}};
  return all;
}

inline KeyExpression parse(const std::string& text) { return KeyExpression::parse(text, tables()); }
inline KeyMap parse_map(const std::string& text) { return KeyMap::parse(text, tables()); }
inline int64_t value_of(const std::string& text, const Key& key = {}, int64_t output = 0) {
  return parse(text).evaluate(key, output);
}
inline KeyExpression number(int64_t value) { return KeyExpression::constant(value); }
inline KeyExpression k(int64_t dim) { return KeyExpression::component(dim); }
inline KeyExpression negated(const KeyExpression& operand) {
  return KeyExpression::unary(KeyOperator::kNegate, operand);
}
inline KeyExpression sum(const KeyExpression& left, const KeyExpression& right) {
  return KeyExpression::binary(KeyOperator::kAdd, left, right);
}

template <class Act>
inline std::string plan_error(const Act& act) {
  try {
    act();
  } catch (const PlanError& error) {
    return error.what();
  }
  return "no error";
}

inline std::string parse_error(const std::string& text) {
  return plan_error([&] { parse(text); });
}

inline std::string evaluation_error(const std::string& text, const Key& key, int64_t output = 0) {
  const KeyExpression expression = parse(text);
  return plan_error([&] { expression.evaluate(key, output); });
}

}  // namespace joinsum::relation

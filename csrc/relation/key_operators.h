#pragma once

#include <array>
#include <string_view>

#include "relation/key_expression.h"

/// What key expressions and their parser share: the operators, how they print and bind, and the limits.
namespace joinsum::relation {

// Bounds that keep every recursive walk, the parser and the destructor within a small stack, and every walk short.
// Nesting counts the brackets and prefix operators that enclose a place in the text, so whatever can be built can be
// printed and parsed again.
inline constexpr int64_t kMaxDepth = 1000;
inline constexpr int64_t kMaxNesting = 200;
inline constexpr int64_t kMaxNodes = 100'000;

// How tightly an operator binds, loosest first.
enum Level { kOrLevel = 1, kAndLevel, kNotLevel, kCompareLevel, kAddLevel, kMultiplyLevel, kNegateLevel, kAtomLevel };

struct BinaryRow {
  KeyOperator op;
  std::string_view token;
  int level;
};

// A token that begins another stands after it.
inline constexpr std::array<BinaryRow, 13> kBinaryRows{{{KeyOperator::kOr, "or", kOrLevel},
                                                        {KeyOperator::kAnd, "and", kAndLevel},
                                                        {KeyOperator::kEqual, "==", kCompareLevel},
                                                        {KeyOperator::kNotEqual, "!=", kCompareLevel},
                                                        {KeyOperator::kLessEqual, "<=", kCompareLevel},
                                                        {KeyOperator::kGreaterEqual, ">=", kCompareLevel},
                                                        {KeyOperator::kLess, "<", kCompareLevel},
                                                        {KeyOperator::kGreater, ">", kCompareLevel},
                                                        {KeyOperator::kAdd, "+", kAddLevel},
                                                        {KeyOperator::kSubtract, "-", kAddLevel},
                                                        {KeyOperator::kMultiply, "*", kMultiplyLevel},
                                                        {KeyOperator::kDivide, "//", kMultiplyLevel},
                                                        {KeyOperator::kModulo, "%", kMultiplyLevel}}};

inline const BinaryRow* binary_row(KeyOperator op) {
  for (const BinaryRow& row : kBinaryRows) {
    if (row.op == op) return &row;
  }
  return nullptr;
}

inline int level_of(KeyOperator op) {
  if (op == KeyOperator::kNot) return kNotLevel;
  if (op == KeyOperator::kNegate) return kNegateLevel;
  const BinaryRow* row = binary_row(op);
  return row == nullptr ? kAtomLevel : row->level;
}

inline bool is_identifier(const std::string& name) {
  Scanner scanner(name);
  return scanner.peek_name() && scanner.name() == name;
}

}  // namespace joinsum::relation

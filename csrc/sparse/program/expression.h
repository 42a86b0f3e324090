#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "sparse/operators/operators.h"

namespace joinsum::sparse::program {

using operators::Operator;

class Expression;
using ExpressionPtr = std::shared_ptr<const Expression>;

/// An expression of the input dialect: freely nested maps and aggregates over tensors and literals.
/// Source: Galley, section 4, figure 4.
class Expression {
 public:
  enum class Kind : uint8_t {
    kInput,      ///< a tensor or an earlier query, its axes named by `indices`; an index may come twice (a diagonal)
    kLiteral,    ///< `value`
    kMap,        ///< `op` applied to the values of `children`
    kAggregate,  ///< the only child reduced by `op` along `indices`, over their whole range
  };

  Kind kind = Kind::kLiteral;
  Operator op = Operator::kAdd;
  std::string tensor = {};
  std::vector<std::string> indices = {};
  double value = 0;
  std::vector<ExpressionPtr> children = {};
  /// Input: which occurrences of the source query's leaves it stands for (see logical/elimination.h).
  std::vector<int64_t> origins = {};

  const ExpressionPtr& child() const { return children.front(); }
};

ExpressionPtr make_input(std::string tensor, std::vector<std::string> indices, std::vector<int64_t> origins = {});
ExpressionPtr make_literal(double value);
/// Raises PlanError where the operator does not take so many children.
ExpressionPtr make_map(Operator op, std::vector<ExpressionPtr> children);
/// Raises PlanError where the operator does not aggregate, or an index comes twice. Without indices it is the child.
ExpressionPtr make_aggregate(Operator op, std::vector<std::string> indices, ExpressionPtr child);

/// The most levels that an expression may have: all walks are recursive.
inline constexpr int64_t kDeepestExpression = 400;
int64_t depth_of(const ExpressionPtr& expression);

bool same(const ExpressionPtr& a, const ExpressionPtr& b);

/// Indices of the value, that no aggregate inside reduces, sorted by name.
std::vector<std::string> free_indices(const ExpressionPtr& expression);
bool has_free_index(const ExpressionPtr& expression, const std::string& index);
bool has_aggregate(const ExpressionPtr& expression);
/// The leaves that read tensors, from left to right.
std::vector<ExpressionPtr> inputs_of(const ExpressionPtr& expression);
/// The expression with free indices renamed.
ExpressionPtr renamed(const ExpressionPtr& expression, const std::map<std::string, std::string>& names);

/// `+[j]((A[i,j] * B[j,k]))`: maps by `+ - * /` stand between their children, literals are exact.
std::string text_of(const ExpressionPtr& expression);
/// What `text_of` prints. Raises PlanError with the place of what is none.
ExpressionPtr parse_expression(const std::string& text);

}  // namespace joinsum::sparse::program

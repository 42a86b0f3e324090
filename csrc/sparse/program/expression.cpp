#include "sparse/program/expression.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <set>

namespace joinsum::sparse::program {
namespace {

std::shared_ptr<Expression> fresh(Expression::Kind kind) {
  auto made = std::make_shared<Expression>();
  made->kind = kind;
  return made;
}

void collect_free(const ExpressionPtr& expression, std::set<std::string>& bound, std::set<std::string>& found) {
  for (const std::string& index :
       expression->kind == Expression::Kind::kInput ? expression->indices : std::vector<std::string>()) {
    if (!bound.contains(index)) found.insert(index);
  }
  std::vector<std::string> added;
  if (expression->kind == Expression::Kind::kAggregate) {
    for (const std::string& index : expression->indices) {
      if (bound.insert(index).second) added.push_back(index);
    }
  }
  for (const ExpressionPtr& child : expression->children) collect_free(child, bound, found);
  for (const std::string& index : added) bound.erase(index);
}

void collect_inputs(const ExpressionPtr& expression, std::vector<ExpressionPtr>& found) {
  if (expression->kind == Expression::Kind::kInput) found.push_back(expression);
  for (const ExpressionPtr& child : expression->children) collect_inputs(child, found);
}

std::string joined(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ",") + name;
  return out;
}

std::string literal_text(double value) {
  if (value != value) return "nan";
  std::array<char, 32> text = {};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return {text.data(), end};
}

bool is_infix(Operator op) {
  using enum Operator;
  return op == kAdd || op == kMultiply || op == kSubtract || op == kDivide;
}

}  // namespace

ExpressionPtr make_input(std::string tensor, std::vector<std::string> indices, std::vector<int64_t> origins) {
  auto made = fresh(Expression::Kind::kInput);
  made->tensor = std::move(tensor);
  made->indices = std::move(indices);
  made->origins = std::move(origins);
  return made;
}

ExpressionPtr make_literal(double value) {
  auto made = fresh(Expression::Kind::kLiteral);
  made->value = value;
  return made;
}

ExpressionPtr make_map(Operator op, std::vector<ExpressionPtr> children) {
  JOINSUM_USER_CHECK(takes(op, children.size()), "sparse program: number of arguments: operator=", name_of(op),
                     ", arguments=", children.size());
  auto made = fresh(Expression::Kind::kMap);
  made->op = op;
  made->children = std::move(children);
  return made;
}

ExpressionPtr make_aggregate(Operator op, std::vector<std::string> indices, ExpressionPtr child) {
  JOINSUM_USER_CHECK(aggregates(op),
                     "sparse program: no aggregate; there are + * min max and or logaddexp: operator=", name_of(op));
  const std::set<std::string> distinct(indices.begin(), indices.end());
  JOINSUM_USER_CHECK(distinct.size() == indices.size(),
                     "sparse program: an aggregate names an index twice: indices=", indices);
  if (indices.empty()) {
    // A single value is its own aggregate, by `and` and `or` its truth.
    return op == Operator::kAnd || op == Operator::kOr ? make_map(op, {std::move(child)}) : child;
  }
  auto made = fresh(Expression::Kind::kAggregate);
  made->op = op;
  made->indices = std::move(indices);
  made->children = {std::move(child)};
  return made;
}

int64_t depth_of(const ExpressionPtr& expression) {
  std::vector<std::pair<const Expression*, int64_t>> pending = {{expression.get(), 1}};
  int64_t deepest = 0;
  while (!pending.empty()) {
    const auto [node, depth] = pending.back();
    pending.pop_back();
    deepest = std::max(deepest, depth);
    for (const ExpressionPtr& child : node->children) pending.emplace_back(child.get(), depth + 1);
  }
  return deepest;
}

bool same(const ExpressionPtr& a, const ExpressionPtr& b) {
  if (a == b) return true;
  if (a->kind != b->kind || a->children.size() != b->children.size()) return false;
  switch (a->kind) {
    case Expression::Kind::kInput:
      if (a->tensor != b->tensor || a->indices != b->indices) return false;
      break;
    case Expression::Kind::kLiteral:
      return a->value == b->value;
    case Expression::Kind::kMap:
      if (a->op != b->op) return false;
      break;
    case Expression::Kind::kAggregate:
      if (a->op != b->op || a->indices != b->indices) return false;
      break;
  }
  return std::ranges::equal(a->children, b->children, same);
}

std::vector<std::string> free_indices(const ExpressionPtr& expression) {
  std::set<std::string> bound, found;
  collect_free(expression, bound, found);
  return {found.begin(), found.end()};
}

bool has_free_index(const ExpressionPtr& expression, const std::string& index) {
  switch (expression->kind) {
    case Expression::Kind::kInput:
      return std::ranges::find(expression->indices, index) != expression->indices.end();
    case Expression::Kind::kAggregate:
      if (std::ranges::find(expression->indices, index) != expression->indices.end()) return false;
      break;
    default:
      break;
  }
  return std::ranges::any_of(expression->children,
                             [&](const ExpressionPtr& child) { return has_free_index(child, index); });
}

bool has_aggregate(const ExpressionPtr& expression) {
  return expression->kind == Expression::Kind::kAggregate || std::ranges::any_of(expression->children, has_aggregate);
}

std::vector<ExpressionPtr> inputs_of(const ExpressionPtr& expression) {
  std::vector<ExpressionPtr> found;
  collect_inputs(expression, found);
  return found;
}

ExpressionPtr renamed(const ExpressionPtr& expression, const std::map<std::string, std::string>& names) {
  const auto name_for = [&](const std::string& index) {
    const auto found = names.find(index);
    return found == names.end() ? index : found->second;
  };
  auto made = std::make_shared<Expression>(*expression);
  if (expression->kind == Expression::Kind::kInput) {
    for (std::string& index : made->indices) index = name_for(index);
    return made;
  }
  std::map<std::string, std::string> inner = names;
  if (expression->kind == Expression::Kind::kAggregate) {
    for (const std::string& index : expression->indices) inner.erase(index);
  }
  for (ExpressionPtr& child : made->children) child = renamed(child, inner);
  return made;
}

std::string text_of(const ExpressionPtr& expression) {
  switch (expression->kind) {
    case Expression::Kind::kInput:
      return expression->tensor + "[" + joined(expression->indices) + "]";
    case Expression::Kind::kLiteral:
      return literal_text(expression->value);
    case Expression::Kind::kAggregate:
      return name_of(expression->op) + "[" + joined(expression->indices) + "](" + text_of(expression->child()) + ")";
    case Expression::Kind::kMap:
      break;
  }
  const bool infix = is_infix(expression->op) && expression->children.size() > 1;
  std::string inner;
  for (const ExpressionPtr& child : expression->children) {
    if (!inner.empty()) inner += infix ? " " + name_of(expression->op) + " " : ", ";
    inner += text_of(child);
  }
  return infix ? "(" + inner + ")" : name_of(expression->op) + "(" + inner + ")";
}

}  // namespace joinsum::sparse::program

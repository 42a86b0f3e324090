#include <limits>
#include <optional>

#include "base/scanner.h"
#include "sparse/program/expression.h"

namespace joinsum::sparse::program {
namespace {

class Parser {
 public:
  explicit Parser(const std::string& text) : scanner_(text) {}

  ExpressionPtr run() {
    ExpressionPtr out = next(1);
    if (!scanner_.at_end()) scanner_.fail("expected the end of the expression");
    return out;
  }

 private:
  ExpressionPtr next(int64_t depth) {
    if (depth > kDeepestExpression) scanner_.fail("the expression is nested too deeply");
    if (scanner_.accept("(")) return infix(depth);
    if (scanner_.peek_number()) return make_literal(scanner_.number());
    for (const auto& [text, value] : {std::pair("-inf", -kInfinity), std::pair("inf", kInfinity),
                                      std::pair("nan", std::numeric_limits<double>::quiet_NaN())}) {
      if (scanner_.accept(text)) return make_literal(value);
    }
    const size_t begin = scanner_.offset();
    for (const Operator op : operators::all_operators()) {
      if (!scanner_.accept(name_of(op))) continue;
      if (scanner_.accept("(")) return make_map(op, list(depth));
      if (auto reduced = aggregate(op, depth)) return reduced;
      scanner_.seek(begin);  // a tensor has the operator's name
    }
    std::string tensor = scanner_.name();
    return make_input(std::move(tensor), indices());
  }

  /// After `(`: children with one operator between them.
  ExpressionPtr infix(int64_t depth) {
    std::vector<ExpressionPtr> children{next(depth + 1)};
    std::optional<Operator> op;
    while (!scanner_.accept(")")) {
      const Operator here = between();
      if (op.value_or(here) != here) scanner_.fail("one operator stands between the children of a map");
      op = here;
      children.push_back(next(depth + 1));
    }
    return op ? make_map(*op, std::move(children)) : children.front();
  }

  Operator between() {
    for (const Operator op : {Operator::kAdd, Operator::kSubtract, Operator::kMultiply, Operator::kDivide}) {
      if (scanner_.accept(name_of(op))) return op;
    }
    scanner_.fail("expected + - * or /");
  }

  /// After an operator's name: `[i,j](...)`; nothing where no parenthesis follows.
  ExpressionPtr aggregate(Operator op, int64_t depth) {
    if (!scanner_.peek("[")) return nullptr;
    std::vector<std::string> reduced = indices();
    if (!scanner_.accept("(")) return nullptr;
    std::vector<ExpressionPtr> children = list(depth);
    if (children.size() != 1) scanner_.fail("an aggregate has one child");
    return make_aggregate(op, std::move(reduced), std::move(children.front()));
  }

  /// After `(`.
  std::vector<ExpressionPtr> list(int64_t depth) {
    std::vector<ExpressionPtr> out;
    do {
      out.push_back(next(depth + 1));
    } while (scanner_.accept(","));
    scanner_.expect(")");
    return out;
  }

  std::vector<std::string> indices() {
    std::vector<std::string> out;
    scanner_.expect("[");
    if (scanner_.accept("]")) return out;
    do {
      out.push_back(scanner_.name());
    } while (scanner_.accept(","));
    scanner_.expect("]");
    return out;
  }

  static constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Scanner scanner_;
};

}  // namespace

ExpressionPtr parse_expression(const std::string& text) { return Parser(text).run(); }

}  // namespace joinsum::sparse::program

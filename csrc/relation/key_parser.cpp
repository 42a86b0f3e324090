#include <charconv>
#include <limits>

#include "relation/key_operators.h"

namespace joinsum::relation {

namespace {

/// Reads `or` < `and` < `not` < comparisons < `+ -` < `* // %` < `-` < atoms by precedence climbing. Comparisons do
/// not chain; a `-` before a number belongs to the number.
class Parser {
 public:
  Parser(Scanner& scanner, const LookupTables& tables) : scanner_(scanner), tables_(tables) {}

  KeyExpression expression() { return binding_at_least(kOrLevel); }

 private:
  KeyExpression binding_at_least(int level) {
    KeyExpression left = prefixed(level);
    bool compared = false;
    for (;;) {
      const BinaryRow* row = peek_operator();
      if (row == nullptr || row->level < level) return left;
      if (compared && row->level == kCompareLevel) scanner_.fail("comparisons do not chain");
      const size_t start = scanner_.offset();
      scanner_.expect(row->token);
      const KeyExpression right = binding_at_least(row->level + 1);
      left = build(start, [&] { return KeyExpression::binary(row->op, left, right); });
      compared = row->level == kCompareLevel;
    }
  }

  const BinaryRow* peek_operator() {
    for (const BinaryRow& row : kBinaryRows) {
      if (scanner_.peek(row.token)) return &row;
    }
    return nullptr;
  }

  KeyExpression prefixed(int level) {
    if (scanner_.peek("+")) scanner_.fail("expected an operand");
    if (scanner_.peek_number()) return KeyExpression::constant(scanner_.integer());
    const size_t start = scanner_.offset();
    if (scanner_.accept("-")) {
      const bool signed_number = scanner_.peek("-") || scanner_.peek("+");
      if (scanner_.peek_number() && !signed_number) return KeyExpression::constant(-scanner_.integer());
      return unary(start, KeyOperator::kNegate, kNegateLevel);
    }
    if (scanner_.peek("not")) {
      if (level > kNotLevel) scanner_.fail("`not` cannot stand here");
      scanner_.expect("not");
      return unary(start, KeyOperator::kNot, kNotLevel);
    }
    return atom();
  }

  KeyExpression unary(size_t start, KeyOperator op, int level) {
    enter();
    const KeyExpression operand = op == KeyOperator::kNegate ? prefixed(level) : binding_at_least(level);
    leave();
    return build(start, [&] { return KeyExpression::unary(op, operand); });
  }

  KeyExpression atom() {
    if (scanner_.accept("(")) {
      enter();
      KeyExpression inside = expression();
      leave();
      scanner_.expect(")");
      return inside;
    }
    if (!scanner_.peek_name()) scanner_.fail("expected an operand");
    const size_t start = scanner_.offset();
    return named(start, scanner_.name());
  }

  KeyExpression named(size_t start, const std::string& name) {
    if (name == "m") return KeyExpression::output();
    if (name == "true" || name == "false") return KeyExpression::truth(name == "true");
    if (name == "lookup") return lookup(start);
    int64_t dim = 0;
    const char* const last = name.data() + name.size();
    const auto [end, error] = std::from_chars(name.data() + 1, last, dim);
    if (name.front() != 'k' || end != last || error != std::errc()) {
      fail_at(start, concatenate("a key expression has no name `", name, "`"));
    }
    return build(start, [&] { return KeyExpression::component(dim); });
  }

  KeyExpression lookup(size_t start) {
    scanner_.expect("(");
    enter();
    const std::shared_ptr<const LookupTable> table = named_table();
    scanner_.expect(",");
    const KeyExpression index = expression();
    leave();
    scanner_.expect(")");
    return build(start, [&] { return KeyExpression::lookup(table, index); });
  }

  std::shared_ptr<const LookupTable> named_table() {
    if (!scanner_.peek_name()) scanner_.fail("expected the name of a lookup table");
    const size_t start = scanner_.offset();
    const std::string name = scanner_.name();
    const auto found = tables_.find(name);
    if (found != tables_.end() && found->second != nullptr && found->second->name == name) return found->second;
    std::vector<std::string> names;
    for (const auto& [other, table] : tables_) {
      if (table != nullptr && table->name == other) names.push_back(other);
    }
    fail_at(start, concatenate("no such lookup table: name=", name, ", tables=", names));
  }

  void enter() {
    if (++nesting_ > kMaxNesting) {
      scanner_.fail(concatenate("key expression: nested too deeply: brackets limit=", kMaxNesting));
    }
  }

  void leave() { --nesting_; }

  /// Names the place in the text when a builder objects.
  template <class Builder>
  KeyExpression build(size_t start, const Builder& builder) {
    try {
      return builder();
    } catch (const PlanError& error) {
      fail_at(start, error.what());
    }
  }

  [[noreturn]] void fail_at(size_t start, const std::string& what) {
    scanner_.seek(start);
    scanner_.fail(what);
  }

  Scanner& scanner_;
  const LookupTables& tables_;
  int64_t nesting_ = 0;
};

void expect_end(Scanner& scanner) {
  if (!scanner.at_end()) scanner.fail("expected an operator or the end");
}

}  // namespace

KeyExpression KeyExpression::parse(Scanner& scanner, const LookupTables& tables) {
  return Parser(scanner, tables).expression();
}

KeyExpression KeyExpression::parse(const std::string& text, const LookupTables& tables) {
  Scanner scanner(text);
  KeyExpression expression = parse(scanner, tables);
  expect_end(scanner);
  return expression;
}

}  // namespace joinsum::relation

#include "base/key_expression.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <string_view>

namespace joinsum {
namespace {

// Bounds that keep every recursive walk, the parser and the destructor within a small stack, and every walk short.
// Nesting counts the brackets and prefix operators that enclose a place in the text, so whatever can be built can be
// printed and parsed again.
constexpr int64_t kMaxDepth = 1000;
constexpr int64_t kMaxNesting = 200;
constexpr int64_t kMaxNodes = 100'000;

// How tightly an operator binds, loosest first.
enum Level { kOrLevel = 1, kAndLevel, kNotLevel, kCompareLevel, kAddLevel, kMultiplyLevel, kNegateLevel, kAtomLevel };

struct BinaryRow {
  KeyOperator op;
  std::string_view token;
  int level;
};

// A token that begins another stands after it.
constexpr std::array<BinaryRow, 13> kBinaryRows{{{KeyOperator::kOr, "or", kOrLevel},
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

const BinaryRow* binary_row(KeyOperator op) {
  for (const BinaryRow& row : kBinaryRows) {
    if (row.op == op) return &row;
  }
  return nullptr;
}

int level_of(KeyOperator op) {
  if (op == KeyOperator::kNot) return kNotLevel;
  if (op == KeyOperator::kNegate) return kNegateLevel;
  const BinaryRow* row = binary_row(op);
  return row == nullptr ? kAtomLevel : row->level;
}

bool takes_booleans(KeyOperator op) { return level_of(op) <= kNotLevel; }

bool gives_boolean(KeyOperator op) {
  return level_of(op) <= kCompareLevel || op == KeyOperator::kTrue || op == KeyOperator::kFalse;
}

/// Whether operand `index` of `op` prints in parentheses. Binary operators group to the left, and `-` before a number
/// would become part of it.
bool needs_parentheses(KeyOperator op, size_t index, const KeyExpression& operand) {
  if (op == KeyOperator::kLookup) return false;
  if (op == KeyOperator::kNegate && operand.op() == KeyOperator::kConstant) return operand.value() >= 0;
  return level_of(operand.op()) < level_of(op) + (index > 0 ? 1 : 0);
}

bool compare(KeyOperator op, int64_t left, int64_t right) {
  switch (op) {
    case KeyOperator::kEqual:
      return left == right;
    case KeyOperator::kNotEqual:
      return left != right;
    case KeyOperator::kLess:
      return left < right;
    case KeyOperator::kLessEqual:
      return left <= right;
    case KeyOperator::kGreater:
      return left > right;
    default:
      return left >= right;
  }
}

/// Computes `left op right` for a divisor that is not 0.
int64_t divide(KeyOperator op, int64_t left, int64_t right) {
  const int64_t remainder = left % right;
  const bool round_down = remainder != 0 && (remainder < 0) != (right < 0);
  if (op == KeyOperator::kDivide) return left / right - (round_down ? 1 : 0);
  return remainder + (round_down ? right : 0);
}

/// Computes `left op right` on integers; gives what is wrong, or nullptr.
const char* calculate(KeyOperator op, int64_t left, int64_t right, int64_t& result) {
  bool overflow = false;
  if (level_of(op) == kCompareLevel) {
    result = compare(op, left, right);
  } else if (op == KeyOperator::kAdd) {
    overflow = __builtin_add_overflow(left, right, &result);
  } else if (op == KeyOperator::kSubtract) {
    overflow = __builtin_sub_overflow(left, right, &result);
  } else if (op == KeyOperator::kMultiply) {
    overflow = __builtin_mul_overflow(left, right, &result);
  } else if (right == 0) {
    return "division by zero";
  } else if (right == -1) {  // the machine's division and remainder trap on INT64_MIN by -1
    result = 0;
    overflow = op == KeyOperator::kDivide && __builtin_sub_overflow(int64_t{0}, left, &result);
  } else {
    result = divide(op, left, right);
  }
  return overflow ? "result exceeds 64 bits" : nullptr;
}

bool is_identifier(const std::string& name) {
  Scanner scanner(name);
  return scanner.peek_name() && scanner.name() == name;
}

}  // namespace

struct KeyExpression::Node {
  KeyOperator op;
  int64_t value = 0;
  std::shared_ptr<const LookupTable> table = nullptr;
  std::vector<KeyExpression> operands = {};

  // Follow from the fields above.
  uint64_t hash = 0;
  int64_t arity = 0;
  int64_t depth = 1;
  int64_t nesting = 0;
  int64_t nodes = 1;
  bool reads_output = false;

  static KeyExpression finish(Node node);
  void check_operand_kinds() const;
  void derive();
  int64_t evaluate(const Key& key, int64_t output) const;
  int64_t look_up(int64_t index, const Key& key, int64_t output) const;
  [[noreturn]] void fail(const char* what, const std::string& detail, const Key& key, int64_t output) const;
  void write(std::string& out) const;
  void write_operand(size_t index, std::string& out) const;
  void collect_components(Dims& out) const;
  bool same(const Node& other) const;
};

KeyExpression KeyExpression::Node::finish(Node node) {
  node.check_operand_kinds();
  node.derive();
  JOINSUM_USER_CHECK(node.depth <= kMaxDepth && node.nesting <= kMaxNesting,
                     "key expression: nested too deeply: depth=", node.depth, ", depth limit=", kMaxDepth,
                     ", brackets=", node.nesting, ", brackets limit=", kMaxNesting);
  JOINSUM_USER_CHECK(node.nodes <= kMaxNodes, "key expression: too long: nodes=", node.nodes, ", limit=", kMaxNodes);
  return KeyExpression(std::make_shared<const Node>(std::move(node)));
}

void KeyExpression::Node::check_operand_kinds() const {
  for (const KeyExpression& operand : operands) {
    if (operand.is_boolean() == takes_booleans(op)) continue;
    const BinaryRow* row = binary_row(op);
    const std::string_view name = row != nullptr               ? row->token
                                  : op == KeyOperator::kLookup ? "lookup"
                                  : op == KeyOperator::kNot    ? "not"
                                                               : "-";
    throw PlanError(concatenate("key expression: `", name, "` takes ", takes_booleans(op) ? "booleans" : "integers",
                                ": operand=", operand.text()));
  }
}

void KeyExpression::Node::derive() {
  hash = hash_mix(hash_text("key_expression"), static_cast<uint64_t>(op));
  hash = hash_mix(hash, static_cast<uint64_t>(value));
  if (table != nullptr) hash = hash_mix(hash, hash_text(table->name));
  reads_output = op == KeyOperator::kOutput;
  if (op == KeyOperator::kComponent) arity = value + 1;
  for (size_t i = 0; i < operands.size(); ++i) {
    const Node& operand = *operands[i].node_;
    hash = hash_mix(hash, operand.hash);
    arity = std::max(arity, operand.arity);
    depth = std::max(depth, operand.depth + 1);
    nesting = std::max(nesting, operand.nesting + (needs_parentheses(op, i, operands[i]) ? 1 : 0));
    nodes += operand.nodes;
    reads_output = reads_output || operand.reads_output;
  }
  if (operands.size() == 1) ++nesting;
}

KeyExpression KeyExpression::constant(int64_t value) {
  return Node::finish({.op = KeyOperator::kConstant, .value = value});
}

KeyExpression KeyExpression::component(int64_t dim) {
  JOINSUM_USER_CHECK(dim >= 0 && dim < std::numeric_limits<int64_t>::max(),
                     "key expression: component out of range: component=", dim);
  return Node::finish({.op = KeyOperator::kComponent, .value = dim});
}

KeyExpression KeyExpression::output() { return Node::finish({.op = KeyOperator::kOutput}); }

KeyExpression KeyExpression::truth(bool value) {
  return Node::finish({.op = value ? KeyOperator::kTrue : KeyOperator::kFalse});
}

KeyExpression KeyExpression::lookup(std::shared_ptr<const LookupTable> table, KeyExpression index) {
  JOINSUM_USER_CHECK(table != nullptr, "key expression: lookup without a table: index=", index.text());
  JOINSUM_USER_CHECK(is_identifier(table->name),
                     "key expression: the name of a lookup table must be an identifier: name=`", table->name, "`");
  return Node::finish({.op = KeyOperator::kLookup, .table = std::move(table), .operands = {std::move(index)}});
}

KeyExpression KeyExpression::unary(KeyOperator op, KeyExpression operand) {
  JOINSUM_USER_CHECK(op == KeyOperator::kNegate || op == KeyOperator::kNot,
                     "key expression: not an operator with one operand: operand=", operand.text());
  return Node::finish({.op = op, .operands = {std::move(operand)}});
}

KeyExpression KeyExpression::binary(KeyOperator op, KeyExpression left, KeyExpression right) {
  JOINSUM_USER_CHECK(binary_row(op) != nullptr, "key expression: not an operator with two operands: left=", left.text(),
                     ", right=", right.text());
  return Node::finish({.op = op, .operands = {std::move(left), std::move(right)}});
}

KeyOperator KeyExpression::op() const { return node_->op; }

int64_t KeyExpression::value() const {
  JOINSUM_CHECK(op() == KeyOperator::kConstant || op() == KeyOperator::kComponent, "expression=", text());
  return node_->value;
}

const std::vector<KeyExpression>& KeyExpression::operands() const { return node_->operands; }
bool KeyExpression::is_boolean() const { return gives_boolean(op()); }
int64_t KeyExpression::arity() const { return node_->arity; }
bool KeyExpression::reads_output() const { return node_->reads_output; }
uint64_t KeyExpression::hash() const { return node_->hash; }

Dims KeyExpression::components() const {
  Dims out;
  node_->collect_components(out);
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

void KeyExpression::Node::collect_components(Dims& out) const {
  if (op == KeyOperator::kComponent) out.push_back(value);
  for (const KeyExpression& operand : operands) operand.node_->collect_components(out);
}

int64_t KeyExpression::evaluate(const Key& key, int64_t output) const { return node_->evaluate(key, output); }

int64_t KeyExpression::Node::evaluate(const Key& key, int64_t output) const {
  const auto operand = [&](size_t index) { return operands[index].node_->evaluate(key, output); };
  switch (op) {
    case KeyOperator::kConstant:
      return value;
    case KeyOperator::kTrue:
      return 1;
    case KeyOperator::kFalse:
      return 0;
    case KeyOperator::kOutput:
      return output;
    case KeyOperator::kComponent:
      if (value >= static_cast<int64_t>(key.size())) fail("component outside the key", "", key, output);
      return key[value];
    case KeyOperator::kLookup:
      return look_up(operand(0), key, output);
    case KeyOperator::kAnd:
      return operand(0) != 0 && operand(1) != 0;
    case KeyOperator::kOr:
      return operand(0) != 0 || operand(1) != 0;
    case KeyOperator::kNot:
      return operand(0) == 0;
    default:
      break;
  }
  const bool negate = op == KeyOperator::kNegate;
  const int64_t left = negate ? 0 : operand(0);
  const int64_t right = operand(negate ? 0 : 1);
  int64_t result = 0;
  const char* wrong = calculate(negate ? KeyOperator::kSubtract : op, left, right, result);
  if (wrong != nullptr) fail(wrong, "", key, output);
  return result;
}

int64_t KeyExpression::Node::look_up(int64_t index, const Key& key, int64_t output) const {
  const auto size = static_cast<int64_t>(table->values.size());
  if (index < 0 || index >= size) {
    fail("index outside the lookup table", concatenate(", index=", index, ", table size=", size), key, output);
  }
  return table->values[index];
}

void KeyExpression::Node::fail(const char* what, const std::string& detail, const Key& key, int64_t output) const {
  std::string expression;
  write(expression);
  throw PlanError(concatenate("key expression: ", what, ": expression=", expression, detail, ", key=", key_text(key),
                              reads_output ? ", m=" + std::to_string(output) : ""));
}

KeyExpression KeyExpression::substitute(const std::vector<KeyExpression>& inner) const {
  if (op() == KeyOperator::kComponent) {
    JOINSUM_USER_CHECK(value() < static_cast<int64_t>(inner.size()),
                       "key expression: nothing to substitute: expression=", text(), ", components=", inner.size());
    const KeyExpression& replacement = inner[value()];
    JOINSUM_USER_CHECK(!replacement.is_boolean(),
                       "key expression: a component must stay an integer: expression=", text(),
                       ", replacement=", replacement.text());
    return replacement;
  }
  if (arity() == 0) return *this;
  Node node{.op = op(), .value = node_->value, .table = node_->table};
  for (const KeyExpression& operand : operands()) node.operands.push_back(operand.substitute(inner));
  return Node::finish(std::move(node));
}

std::string KeyExpression::text() const {
  std::string out;
  node_->write(out);
  return out;
}

void KeyExpression::Node::write(std::string& out) const {
  switch (op) {
    case KeyOperator::kConstant:
      out += std::to_string(value);
      return;
    case KeyOperator::kComponent:
      out += "k" + std::to_string(value);
      return;
    case KeyOperator::kOutput:
      out += "m";
      return;
    case KeyOperator::kTrue:
      out += "true";
      return;
    case KeyOperator::kFalse:
      out += "false";
      return;
    case KeyOperator::kLookup:
      out += "lookup(" + table->name + ", ";
      break;
    case KeyOperator::kNegate:
      out += "-";
      break;
    case KeyOperator::kNot:
      out += "not ";
      break;
    default:
      break;
  }
  write_operand(0, out);
  if (op == KeyOperator::kLookup) out += ")";
  if (operands.size() == 1) return;
  out.append(" ").append(binary_row(op)->token).append(" ");
  write_operand(1, out);
}

void KeyExpression::Node::write_operand(size_t index, std::string& out) const {
  const bool parentheses = needs_parentheses(op, index, operands[index]);
  if (parentheses) out += "(";
  operands[index].node_->write(out);
  if (parentheses) out += ")";
}

bool KeyExpression::operator==(const KeyExpression& other) const { return node_->same(*other.node_); }

bool KeyExpression::Node::same(const Node& other) const {
  if (this == &other) return true;
  if (hash != other.hash || op != other.op || value != other.value) return false;
  if (table != nullptr && table->name != other.table->name) return false;
  return operands == other.operands;
}

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

KeyMap::KeyMap(std::vector<KeyExpression> components) : components_(std::move(components)) {
  for (const KeyExpression& component : components_) {
    JOINSUM_USER_CHECK(!component.is_boolean(),
                       "key map: a component must be an integer: component=", component.text());
  }
}

KeyMap KeyMap::identity(int64_t arity) { return projection(all_dims(arity)); }

KeyMap KeyMap::projection(const Dims& dims) {
  std::vector<KeyExpression> components;
  for (const int64_t dim : dims) components.push_back(KeyExpression::component(dim));
  return KeyMap(std::move(components));
}

int64_t KeyMap::input_arity() const {
  int64_t arity = 0;
  for (const KeyExpression& component : components_) arity = std::max(arity, component.arity());
  return arity;
}

bool KeyMap::is_identity(int64_t arity) const { return copied_dims() == all_dims(arity); }

bool KeyMap::reads_output() const {
  return std::any_of(components_.begin(), components_.end(), [](const auto& c) { return c.reads_output(); });
}

Dims KeyMap::copied_dims() const {
  Dims out;
  for (const KeyExpression& component : components_) {
    out.push_back(component.op() == KeyOperator::kComponent ? component.value() : -1);
  }
  return out;
}

Key KeyMap::evaluate(const Key& key, int64_t output) const {
  Key out;
  out.reserve(components_.size());
  for (const KeyExpression& component : components_) {
    out.push_back(component.evaluate(key, output));
    JOINSUM_USER_CHECK(out.back() >= 0, "key map: negative component: component=", component.text(),
                       ", value=", out.back(), ", key=", key_text(key),
                       component.reads_output() ? ", m=" + std::to_string(output) : "");
  }
  return out;
}

std::string KeyMap::text() const {
  std::string out = "(";
  for (size_t i = 0; i < components_.size(); ++i) out += (i > 0 ? ", " : "") + components_[i].text();
  return out + ")";
}

KeyMap KeyMap::parse(Scanner& scanner, const LookupTables& tables) {
  std::vector<KeyExpression> components;
  scanner.expect("(");
  if (scanner.accept(")")) return KeyMap();
  do {
    if (scanner.at_end()) scanner.fail("expected an operand");
    const size_t start = scanner.offset();
    components.push_back(KeyExpression::parse(scanner, tables));
    if (components.back().is_boolean()) {
      scanner.seek(start);
      scanner.fail(concatenate("key map: a component must be an integer: component=", components.back().text()));
    }
  } while (scanner.accept(","));
  scanner.expect(")");
  return KeyMap(std::move(components));
}

KeyMap KeyMap::parse(const std::string& text, const LookupTables& tables) {
  Scanner scanner(text);
  KeyMap map = parse(scanner, tables);
  expect_end(scanner);
  return map;
}

uint64_t KeyMap::hash() const {
  uint64_t hash = hash_mix(hash_text("key_map"), components_.size());
  for (const KeyExpression& component : components_) hash = hash_mix(hash, component.hash());
  return hash;
}

}  // namespace joinsum

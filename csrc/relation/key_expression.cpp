#include "relation/key_expression.h"

#include <algorithm>
#include <limits>

#include "relation/key_operators.h"

namespace joinsum::relation {

namespace {
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

void KeyExpression::collect_tables(LookupTables& out) const {
  if (node_->op == KeyOperator::kLookup) out.emplace(node_->table->name, node_->table);
  for (const KeyExpression& operand : operands()) operand.collect_tables(out);
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

}  // namespace joinsum::relation

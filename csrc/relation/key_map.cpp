#include <algorithm>

#include "relation/key_expression.h"

namespace joinsum::relation {

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

void KeyMap::collect_tables(LookupTables& out) const {
  for (const KeyExpression& component : components_) component.collect_tables(out);
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
  if (!scanner.at_end()) scanner.fail("expected an operator or the end");
  return map;
}

uint64_t KeyMap::hash() const {
  uint64_t hash = hash_mix(hash_text("key_map"), components_.size());
  for (const KeyExpression& component : components_) hash = hash_mix(hash, component.hash());
  return hash;
}

}  // namespace joinsum::relation

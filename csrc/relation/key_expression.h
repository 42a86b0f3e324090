#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/dims.h"
#include "base/scanner.h"

namespace joinsum::relation {

/// A named integer table that `lookup(name, index)` reads. The contents are bound at run time: two expressions that
/// read tables of one name are equal, print alike and hash alike whatever the tables hold.
struct LookupTable {
  std::string name;
  std::vector<int64_t> values;
};
using LookupTables = std::map<std::string, std::shared_ptr<const LookupTable>>;

enum class KeyOperator {
  kConstant,
  kComponent,
  kOutput,
  kLookup,  // leaves: 3, k0, m; lookup(name, e)
  kNegate,
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kModulo,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kAnd,
  kOr,
  kNot,
  kTrue,
  kFalse,
};

/// An integer or boolean function of a key, as data: it can be evaluated, printed, parsed, compared and hashed.
/// `k0`, `k1`, ... are the key's components; `m` is the number of the output tuple of a map with several.
/// `//` and `%` round towards minus infinity, as in Python.
class KeyExpression {
 public:
  static KeyExpression constant(int64_t value);
  static KeyExpression component(int64_t dim);
  static KeyExpression output();
  static KeyExpression truth(bool value);
  static KeyExpression lookup(std::shared_ptr<const LookupTable> table, KeyExpression index);
  /// Raises PlanError when the operands' kinds (integer, boolean) do not fit `op`.
  static KeyExpression unary(KeyOperator op, KeyExpression operand);
  static KeyExpression binary(KeyOperator op, KeyExpression left, KeyExpression right);

  KeyOperator op() const;
  int64_t value() const;  ///< of a constant, or the dimension of a component
  const std::vector<KeyExpression>& operands() const;
  bool is_boolean() const;
  /// One more than the largest component read; 0 when none is.
  int64_t arity() const;
  bool reads_output() const;
  /// Components that are read, ascending.
  Dims components() const;
  /// Adds the tables that are read, by name.
  void collect_tables(LookupTables& out) const;

  /// Value at `key` (booleans are 0 and 1). Overflow, division by zero and an index outside its table raise
  /// PlanError and name the key.
  int64_t evaluate(const Key& key, int64_t output = 0) const;

  /// Replaces component d by `inner[d]`: composes this function with a key map.
  KeyExpression substitute(const std::vector<KeyExpression>& inner) const;

  /// Text in the fewest parentheses; `parse(text()) == *this`. A `-` before a number is part of it: `-3` is a
  /// constant, `-(3)` the negation of one.
  std::string text() const;
  static KeyExpression parse(Scanner& scanner, const LookupTables& tables);
  static KeyExpression parse(const std::string& text, const LookupTables& tables = {});

  uint64_t hash() const;
  bool operator==(const KeyExpression& other) const;

 private:
  struct Node;
  explicit KeyExpression(std::shared_ptr<const Node> node) : node_(std::move(node)) {}
  std::shared_ptr<const Node> node_;
};

/// A function from keys to keys: one integer expression per output component. Prints as `(k1, k0)`.
class KeyMap {
 public:
  KeyMap() = default;
  explicit KeyMap(std::vector<KeyExpression> components);
  static KeyMap identity(int64_t arity);
  /// Keeps the components `dims`, in that order.
  static KeyMap projection(const Dims& dims);

  const std::vector<KeyExpression>& components() const { return components_; }
  int64_t input_arity() const;
  int64_t output_arity() const { return static_cast<int64_t>(components_.size()); }
  bool is_identity(int64_t arity) const;
  bool reads_output() const;
  void collect_tables(LookupTables& out) const;
  /// For each output component, the key dimension it copies unchanged, or -1.
  Dims copied_dims() const;
  /// Raises, naming the key, when a component is negative.
  Key evaluate(const Key& key, int64_t output = 0) const;

  std::string text() const;
  static KeyMap parse(Scanner& scanner, const LookupTables& tables);
  static KeyMap parse(const std::string& text, const LookupTables& tables = {});
  uint64_t hash() const;
  bool operator==(const KeyMap& other) const = default;

 private:
  std::vector<KeyExpression> components_;
};

}  // namespace joinsum::relation

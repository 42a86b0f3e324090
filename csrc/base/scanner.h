#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/dims.h"

namespace joinsum {

/// Reads a text left to right; every error names its line and column. Blanks and `#` comments are skipped
/// before each token; line ends are blanks.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  /// True when only blanks and comments are left.
  bool at_end();
  /// Whether the rest starts with `token` (a whole word, when `token` ends in a letter or digit); takes nothing.
  bool peek(std::string_view token);
  /// Takes `token` if the rest starts with it.
  bool accept(std::string_view token);
  /// Takes `token` or raises.
  void expect(std::string_view token);
  /// Whether an identifier (letter or `_`, then letters, digits, `_`, `.`) comes next.
  bool peek_name();
  std::string name();
  /// Whether the name of a plan's input, node or output comes next: an identifier that may begin with a digit,
  /// `0.weight`.
  bool peek_plan_name();
  std::string plan_name();
  /// Whether a digit, or a sign followed by a digit, comes next.
  bool peek_number();
  int64_t integer();
  double number();
  /// Takes everything up to (not including) the first of `stops` that is outside nested brackets.
  std::string raw_until(std::string_view stops);
  /// Dims as `0, 2` (possibly none) up to a closing character that is left in place.
  Dims integers();

  /// Position in the text; `seek` goes back to one.
  size_t offset() const { return offset_; }
  void seek(size_t offset) { offset_ = offset; }
  /// Raises PlanError `parse: what: line=, column=, near=...`.
  [[noreturn]] void fail(const std::string& what) const;

 private:
  void skip_blanks();
  std::string word();
  std::string_view text_;
  size_t offset_ = 0;
};

}  // namespace joinsum

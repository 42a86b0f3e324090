#include "base/scanner.h"

#include <algorithm>
#include <cctype>
#include <charconv>

namespace joinsum {
namespace {

// ASCII only: what a plan's text means must not depend on the locale.
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_word(char c) { return is_letter(c) || is_digit(c) || c == '_'; }

}  // namespace

void Scanner::skip_blanks() {
  while (offset_ < text_.size()) {
    const char c = text_[offset_];
    if (c == '#') {
      offset_ = std::min(text_.find('\n', offset_), text_.size());
    } else if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
      ++offset_;
    } else {
      return;
    }
  }
}

bool Scanner::at_end() {
  skip_blanks();
  return offset_ == text_.size();
}

bool Scanner::peek(std::string_view token) {
  skip_blanks();
  if (text_.substr(offset_, token.size()) != token) return false;
  const size_t end = offset_ + token.size();
  return token.empty() || !is_word(token.back()) || end == text_.size() || !is_word(text_[end]);
}

bool Scanner::accept(std::string_view token) {
  if (!peek(token)) return false;
  offset_ += token.size();
  return true;
}

void Scanner::expect(std::string_view token) {
  if (!accept(token)) fail(concatenate("expected `", token, "`"));
}

bool Scanner::peek_name() {
  skip_blanks();
  return offset_ < text_.size() && is_word(text_[offset_]) && !is_digit(text_[offset_]);
}

std::string Scanner::name() {
  if (!peek_name()) fail("expected a name");
  return word();
}

bool Scanner::peek_plan_name() {
  skip_blanks();
  return offset_ < text_.size() && is_word(text_[offset_]);
}

std::string Scanner::plan_name() {
  if (!peek_plan_name()) fail("expected a name");
  return word();
}

std::string Scanner::word() {
  const size_t begin = offset_;
  while (offset_ < text_.size() && (is_word(text_[offset_]) || text_[offset_] == '.')) ++offset_;
  return std::string(text_.substr(begin, offset_ - begin));
}

bool Scanner::peek_number() {
  skip_blanks();
  const size_t digit = offset_ + (offset_ < text_.size() && (text_[offset_] == '-' || text_[offset_] == '+') ? 1 : 0);
  return digit < text_.size() && is_digit(text_[digit]);
}

int64_t Scanner::integer() {
  if (!peek_number()) fail("expected an integer");
  int64_t value = 0;
  const char* begin = text_.data() + offset_ + (text_[offset_] == '+' ? 1 : 0);
  const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), value);
  if (error != std::errc()) fail("integer does not fit 64 bits");
  offset_ = static_cast<size_t>(end - text_.data());
  return value;
}

double Scanner::number() {
  if (!peek_number()) fail("expected a number");
  double value = 0;
  const char* begin = text_.data() + offset_ + (text_[offset_] == '+' ? 1 : 0);
  const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), value);
  if (error != std::errc()) fail("number is out of range");
  offset_ = static_cast<size_t>(end - text_.data());
  return value;
}

std::string Scanner::raw_until(std::string_view stops) {
  skip_blanks();
  const size_t begin = offset_;
  int depth = 0;
  while (offset_ < text_.size()) {
    const char c = text_[offset_];
    if (depth == 0 && stops.find(c) != std::string_view::npos) break;
    if (c == '(' || c == '[' || c == '{') ++depth;
    if (c == ')' || c == ']' || c == '}') --depth;
    if (depth < 0) break;
    ++offset_;
  }
  std::string raw(text_.substr(begin, offset_ - begin));
  while (!raw.empty() && std::isspace(static_cast<unsigned char>(raw.back())) != 0) raw.pop_back();
  return raw;
}

Dims Scanner::integers() {
  Dims out;
  if (!peek_number()) return out;
  do {
    out.push_back(integer());
  } while (accept(","));
  return out;
}

void Scanner::fail(const std::string& what) const {
  const auto before = text_.substr(0, offset_);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t start = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
  std::string near(text_.substr(offset_, 24));
  near = near.substr(0, near.find('\n'));
  for (char& c : near) {
    if (std::isprint(static_cast<unsigned char>(c)) == 0) c = '?';
  }
  throw PlanError(concatenate("parse: ", what, ": line=", line, ", column=", offset_ - start + 1, ", near=`",
                              offset_ == text_.size() ? "end of text" : near, "`"));
}

}  // namespace joinsum

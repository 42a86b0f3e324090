#include "base/plan_text.h"

#include <algorithm>

namespace joinsum {

std::string dims_text(const Dims& dims) {
  std::string out;
  for (size_t i = 0; i < dims.size(); ++i) out += (i > 0 ? ", " : "") + std::to_string(dims[i]);
  return out;
}

Dims parse_dims(Scanner& scanner) {
  Dims dims = scanner.integers();
  scanner.expect(";");
  return dims;
}

std::string without_blanks(const std::string& text) {
  std::string out;
  std::copy_if(text.begin(), text.end(), std::back_inserter(out),
               [](char c) { return c != ' ' && c != '\t' && c != '\r' && c != '\n'; });
  return out;
}

std::string with_line(const std::string& message, std::string_view text, size_t offset) {
  if (message.find("line=") != std::string::npos) return message;
  const auto before = text.substr(0, offset);
  return concatenate(message, ", line=", 1 + std::count(before.begin(), before.end(), '\n'));
}

}  // namespace joinsum

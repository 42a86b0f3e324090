#include "runtime/communication/first_difference.h"

#include <algorithm>
#include <optional>
#include <sstream>

#include "base/check.h"

namespace joinsum::runtime::communication {
namespace {

/// Characters of a long line that an error shows, and how many of them stand before the first difference.
constexpr size_t kShown = 160;
constexpr size_t kShownBefore = 60;

std::optional<std::string> line_of(const std::string& text, size_t number) {
  std::istringstream in(text);
  std::string line;
  for (size_t i = 0; i <= number; ++i) {
    if (!std::getline(in, line)) return std::nullopt;
  }
  return line;
}

/// A line as an error shows it: all of it, or what surrounds its first difference from `other`.
std::string shown(const std::optional<std::string>& line, const std::optional<std::string>& other) {
  if (!line) return "(no such line)";
  if (line->size() <= kShown) return *line;
  const std::string& against = other ? *other : std::string();
  const size_t same = std::mismatch(line->begin(), line->end(), against.begin(), against.end()).first - line->begin();
  const size_t begin = std::min(same > kShownBefore ? same - kShownBefore : 0, line->size() - kShown);
  const char* const end = begin + kShown < line->size() ? "..." : "";
  return (begin > 0 ? "..." : "") + line->substr(begin, kShown) + end;
}

}  // namespace

std::string first_difference(const std::vector<std::string>& texts) {
  // Lines are the same up to the first character in which some text differs from the first one.
  size_t same = texts[0].size();
  for (const std::string& text : texts) {
    const auto end = std::mismatch(texts[0].begin(), texts[0].end(), text.begin(), text.end()).first;
    same = std::min(same, static_cast<size_t>(end - texts[0].begin()));
  }
  size_t number = std::count(texts[0].begin(), texts[0].begin() + static_cast<std::ptrdiff_t>(same), '\n');
  for (const size_t last = number + 1; number <= last; ++number) {
    const auto first = line_of(texts[0], number);
    for (size_t site = 1; site < texts.size(); ++site) {
      const auto line = line_of(texts[site], number);
      if (line == first) continue;
      return concatenate("line=", number + 1, ", site 0: ", shown(first, line), ", site ", site, ": ",
                         shown(line, first));
    }
  }
  return "the texts differ in their line ends";
}

}  // namespace joinsum::runtime::communication

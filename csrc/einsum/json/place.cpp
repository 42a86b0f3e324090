#include "einsum/json/place.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "base/check.h"

namespace joinsum::einsum::json {

std::string escaped(const std::string& text) {
  const std::string quoted = nlohmann::ordered_json(text).dump(-1, ' ', true);
  return quoted.substr(1, quoted.size() - 2);
}

std::string place_of(const std::string& text, size_t offset) {
  const std::string before = text.substr(0, offset);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t start = before.rfind('\n') == std::string::npos ? 0 : before.rfind('\n') + 1;
  return concatenate("line=", line, ", column=", before.size() - start + 1);
}

std::string path_step(const std::string& name) {
  const auto word = [](char c) { return is_letter(c) || c == '_' || (c >= '0' && c <= '9'); };
  const bool plain = !name.empty() && std::all_of(name.begin(), name.end(), word) && (name[0] < '0' || name[0] > '9');
  return plain ? "." + name : "[\"" + escaped(name) + "\"]";
}

std::string Place::path() const {
  std::string out = "$";
  for (const Level& level : levels_) {
    if (level.list && level.index >= 0) out += concatenate("[", level.index, "]");
    if (!level.list && !level.names.empty()) out += path_step(level.name);
  }
  return out;
}

}  // namespace joinsum::einsum::json

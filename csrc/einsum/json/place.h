#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace joinsum::einsum::json {

/// Whether labels that are one such character may be written as text.
inline bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/// A text as JSON has it between quotation marks, in ASCII.
std::string escaped(const std::string& text);

/// Where the byte `offset` of a text stands: `line=2, column=7`.
std::string place_of(const std::string& text, size_t offset);

/// A step of a JSON path: `.name`, or `["a name"]`.
std::string path_step(const std::string& name);

/// Where a parser is: in the lists and objects that are open.
class Place {
 public:
  void open(bool list) {
    begin_value();
    levels_.push_back({list, {}, {}, -1});
  }
  void close() { levels_.pop_back(); }
  void begin_value() {
    if (!levels_.empty() && levels_.back().list) ++levels_.back().index;
  }
  /// Whether it is the first of this name in its object.
  bool name(const std::string& name) {
    levels_.back().name = name;
    return levels_.back().names.insert(name).second;
  }
  /// `$.ops[2].join`
  std::string path() const;

 private:
  struct Level {
    bool list;
    std::set<std::string> names;  ///< that an object has had
    std::string name;             ///< the last of them
    int64_t index;                ///< of the last value of a list
  };
  std::vector<Level> levels_;
};

}  // namespace joinsum::einsum::json

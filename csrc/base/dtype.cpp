#include "base/dtype.h"

#include <array>

namespace joinsum {
namespace {

struct Row {
  std::string name;
  int64_t bytes;
};

const std::array<Row, 12>& rows() {
  static const std::array<Row, 12> table{{{"bool", 1},
                                          {"u8", 1},
                                          {"i8", 1},
                                          {"i16", 2},
                                          {"i32", 4},
                                          {"i64", 8},
                                          {"f16", 2},
                                          {"bf16", 2},
                                          {"f32", 4},
                                          {"f64", 8},
                                          {"c64", 8},
                                          {"c128", 16}}};
  return table;
}

}  // namespace

int64_t byte_size(DType dtype) { return rows()[static_cast<size_t>(dtype)].bytes; }

const std::string& name_of(DType dtype) { return rows()[static_cast<size_t>(dtype)].name; }

const std::vector<std::string>& dtype_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> out;
    for (const Row& row : rows()) out.push_back(row.name);
    return out;
  }();
  return names;
}

std::optional<DType> dtype_from_name(const std::string& name) {
  for (size_t i = 0; i < rows().size(); ++i) {
    if (rows()[i].name == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

}  // namespace joinsum

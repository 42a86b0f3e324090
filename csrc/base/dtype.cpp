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

bool is_complex(DType dtype) { return dtype == DType::kComplex64 || dtype == DType::kComplex128; }

bool is_half_float(DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kBFloat16; }

bool is_real_float(DType dtype) { return is_half_float(dtype) || dtype == DType::kFloat32 || dtype == DType::kFloat64; }

bool is_integer(DType dtype) { return dtype != DType::kBool && !is_complex(dtype) && !is_real_float(dtype); }

bool contains(Domain domain, DType dtype) {
  switch (domain) {
    case Domain::kAny:
      return true;
    case Domain::kOrdered:
      return !is_complex(dtype);
    case Domain::kFloating:
      return is_real_float(dtype) || is_complex(dtype);
    case Domain::kReal:
      return is_real_float(dtype);
  }
  return false;
}

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

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace joinsum {

/// Element type of an array; the printed names are the short ones (`f32`).
enum class DType {
  kBool,
  kUInt8,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kFloat16,
  kBFloat16,
  kFloat32,
  kFloat64,
  kComplex64,
  kComplex128
};

/// A set of dtypes, as the values that a kernel is defined on.
enum class Domain {
  kAny,
  kOrdered,   ///< no complex
  kFloating,  ///< real or complex floats
  kReal,      ///< real floats
};

bool is_complex(DType dtype);
/// Whether a dtype is a real float of any width.
bool is_real_float(DType dtype);
/// Whether a dtype is a float of 16 bits.
bool is_half_float(DType dtype);
/// Whether a dtype is an integer; bool is none.
bool is_integer(DType dtype);
bool contains(Domain domain, DType dtype);

/// Bytes of one element.
int64_t byte_size(DType dtype);

/// Printed name: `f32`, `i64`, `bf16`, `c64`, ...
const std::string& name_of(DType dtype);

/// Printed names of all dtypes.
const std::vector<std::string>& dtype_names();

/// The dtype with that printed name, if there is one.
std::optional<DType> dtype_from_name(const std::string& name);

}  // namespace joinsum

#include "sparse/tensor/elements.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <type_traits>

#include "sparse/tensor/by_tensor.h"

namespace joinsum::sparse::tensor {
namespace {

/// Whether an integer type of `bits` bits, one of them its sign's, has the value.
bool is_integer_of(double value, int bits, bool is_signed) {
  const double upper = std::ldexp(1.0, is_signed ? bits - 1 : bits);
  return value == std::trunc(value) && value < upper && value >= (is_signed ? -upper : 0.0);
}

bool holds(DType dtype, double value) {
  switch (dtype) {
    case DType::kFloat32:
      return !std::isfinite(value) || std::isfinite(static_cast<float>(value));
    case DType::kInt32:
      return is_integer_of(value, 32, true);
    case DType::kInt64:
      return is_integer_of(value, 64, true);
    case DType::kUInt8:
      return is_integer_of(value, 8, false);
    case DType::kBool:
      return value == 0.0 || value == 1.0;
    default:
      return true;
  }
}

}  // namespace

bool is_element_type(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
    case DType::kFloat64:
    case DType::kInt32:
    case DType::kInt64:
    case DType::kUInt8:
    case DType::kBool:
      return true;
    default:
      return false;
  }
}

void check_element_type(const std::string& who, DType dtype) {
  JOINSUM_USER_CHECK(is_element_type(dtype), who, ": unsupported dtype: dtype=", name_of(dtype),
                     ", supported=[f32, f64, i32, i64, u8, bool]");
}

double fill_of(DType dtype, double fill) {
  check_element_type("sparse tensor", dtype);
  JOINSUM_USER_CHECK(holds(dtype, fill), "sparse tensor: the dtype has no such value as the fill: fill=", fill,
                     ", dtype=", name_of(dtype));
  return dtype == DType::kFloat32 ? static_cast<double>(static_cast<float>(fill)) : fill;
}

void check_truths(const Values& values) {
  if (values.dtype != DType::kBool) return;
  auto all = std::byte{0};  // a loop without branches
  for (const std::byte b : values.bytes) all |= b;
  if (all <= std::byte{1}) return;
  const auto* wrong =
      std::find_if(values.bytes.begin(), values.bytes.end(), [](std::byte b) { return b > std::byte{1}; });
  JOINSUM_USER_CHECK(wrong == values.bytes.end(),
                     "sparse tensor: a bool is neither 0 nor 1: place=", wrong - values.bytes.begin(),
                     ", byte=", std::to_integer<int>(*wrong));
}

bool all_finite(const Values& values) {
  return with_element_type("sparse tensor", values.dtype, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (std::is_floating_point_v<T>) {
      // What is not finite differs from itself by no number. A loop that is compiled for several values at a time.
      using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
      constexpr int64_t kBlock = 4096;
      const T* data = values.as<T>();
      for (int64_t begin = 0; begin < values.count(); begin += kBlock) {
        const int64_t end = std::min(values.count(), begin + kBlock);
        Bits differences = 0;
        for (int64_t i = begin; i < end; ++i) differences |= std::bit_cast<Bits>(data[i] - data[i]);
        if (differences != 0) return false;
      }
    }
    return true;
  });
}

bool all_finite(const std::shared_ptr<const Tensor>& tensor) {
  static ByTensor<bool> known;
  return known.of(tensor, [](const Tensor& each) { return all_finite(each.values); });
}

}  // namespace joinsum::sparse::tensor

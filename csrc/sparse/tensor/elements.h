#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "sparse/tensor/tensor.h"

/// Elements of the dtypes that sparse tensors hold.
namespace joinsum::sparse::tensor {

/// Whether sparse tensors have elements of this dtype.
bool is_element_type(DType dtype);
/// Raises PlanError naming the dtypes of sparse tensors for another one; `who` opens the message.
void check_element_type(const std::string& who, DType dtype);

/// Calls `visit` with a zero of the C++ type of a dtype; a bool is a uint8_t of 0 or 1. Raises as `check_element_type`.
template <class Visit>
decltype(auto) with_element_type(const std::string& who, DType dtype, Visit&& visit) {
  switch (dtype) {
    case DType::kFloat32:
      return visit(float{0});
    case DType::kInt32:
      return visit(int32_t{0});
    case DType::kInt64:
      return visit(int64_t{0});
    case DType::kUInt8:
    case DType::kBool:
      return visit(uint8_t{0});
    default:
      check_element_type(who, dtype);
      return visit(double{0});
  }
}

/// The fill as the dtype holds it: rounded to f32, itself otherwise. Raises PlanError where the dtype has no such
/// value.
double fill_of(DType dtype, double fill);

/// Raises PlanError for a bool that is neither 0 nor 1.
void check_truths(const Values& values);

/// Whether no value is an infinity or no number.
bool all_finite(const Values& values);

/// The same of a tensor's values, which are looked at once while it is alive.
bool all_finite(const std::shared_ptr<const Tensor>& tensor);

/// Whether two elements are the same value; numbers that are not are.
template <class T>
bool same_value(T a, T b) {
  return a == b || (a != a && b != b);
}

/// An array of values under construction.
template <class T>
class ValueBuffer {
 public:
  explicit ValueBuffer(int64_t count) : bytes_(static_cast<size_t>(count) * sizeof(T)) {}
  ValueBuffer(int64_t count, T fill) : ValueBuffer(count) { std::fill_n(data(), count, fill); }

  T* data() { return reinterpret_cast<T*>(bytes_.data()); }
  Values take(DType dtype) { return {dtype, Array<std::byte>(std::move(bytes_))}; }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace joinsum::sparse::tensor

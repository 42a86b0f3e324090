#pragma once

#include <algorithm>
#include <initializer_list>
#include <optional>

#include <ATen/ATen.h>
#include <ATen/OpMathType.h>

#include "kernels/threads/parallel.h"
#include "kernels/torch_call/processor_rows.h"

namespace joinsum::kernels::torch_call {

/// What softmaxes and norms of rows share.

/// A tensor as rows of adjacent elements.
struct Rows {
  int64_t count = 1;
  int64_t length = 1;
  Rows() = default;
  Rows(const at::Tensor& input, at::IntArrayRef normalized_shape) {
    for (const int64_t extent : normalized_shape) length *= extent;
    count = length == 0 ? 0 : input.numel() / length;
  }
};

/// Single precision for halves, which are summed so.
inline at::Tensor wide(const at::Tensor& tensor) { return tensor.to(at::toOpMathType(tensor.scalar_type())); }

inline at::Tensor contiguous(const std::optional<at::Tensor>& tensor) {
  return tensor && tensor->defined() ? tensor->contiguous() : at::Tensor();
}

/// Whether all are of a type that the loops take.
inline bool single_type(const at::Tensor& input, std::initializer_list<at::Tensor> others) {
  const auto type = input.scalar_type();
  return (type == at::kFloat || type == at::kDouble) &&
         std::all_of(others.begin(), others.end(),
                     [&](const at::Tensor& other) { return !other.defined() || other.scalar_type() == type; });
}

template <class T>
const T* data_of(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr<T>() : nullptr;
}

/// Calls `visit(begin, end)` for ranges of columns, in threads: a column's sum over the rows is in their order.
template <class Visit>
void for_columns(const Rows& all, Visit visit) {
  constexpr int64_t kColumns = 64;  // a thread's, at least
  const int64_t parts = (all.length + kColumns - 1) / kColumns;
  threads::for_each_range(parts, std::max<int64_t>(1, rows_per_thread(all.count * kColumns)),
                          [&](int64_t b, int64_t e) { visit(b * kColumns, std::min(e * kColumns, all.length)); });
}

}  // namespace joinsum::kernels::torch_call

#include "kernels/dense/row_sums.h"

#include <algorithm>
#include <span>

#include <ATen/Parallel.h>

#include "kernels/pairs/pairs.h"
#include "kernels/threads/parallel.h"

namespace joinsum::kernels::dense {
namespace {

/// Rows that are added one by one.
constexpr size_t kRowsAtOnce = 32;
/// Elements of a row that are summed at a time: totals stay in the first cache.
constexpr int64_t kMostElements = 1024;

struct Axis {
  int64_t extent;
  int64_t stride;
};

/// Axes of more than one element, by descending stride; two that can be viewed as one are.
std::vector<Axis> merged(const at::Tensor& x, const Dims& axes) {
  std::vector<Axis> all;
  for (const int64_t axis : axes) {
    if (x.size(axis) != 1) all.push_back({x.size(axis), x.stride(axis)});
  }
  std::stable_sort(all.begin(), all.end(), [](const Axis& a, const Axis& b) { return a.stride > b.stride; });
  std::vector<Axis> out;
  for (const Axis& axis : all) {
    if (!out.empty() && out.back().stride == axis.extent * axis.stride) {
      out.back() = {out.back().extent * axis.extent, axis.stride};
    } else {
      out.push_back(axis);
    }
  }
  return out;
}

/// Where the elements over the axes start.
Dims offsets(const std::vector<Axis>& axes) {
  pairs::Merged all;
  for (const Axis& axis : axes) {
    all.extents.push_back(axis.extent);
    all.left.push_back(axis.stride);
  }
  return all.offsets(all.left, 0, all.count());
}

/// Σ over `rows` of `count` elements each, which start there; by halves, so that errors do not grow with their number.
template <class T>
void add_rows(const T* x, std::span<const int64_t> rows, int64_t count, T* total) {
  if (rows.size() <= kRowsAtOnce) {
    std::copy_n(x + rows[0], count, total);
    for (const int64_t row : rows.subspan(1)) {
      for (int64_t i = 0; i < count; ++i) total[i] += x[row + i];
    }
    return;
  }
  T rest[kMostElements];
  add_rows(x, rows.first(rows.size() / 2), count, total);
  add_rows(x, rows.subspan(rows.size() / 2), count, rest);
  for (int64_t i = 0; i < count; ++i) total[i] += rest[i];
}

template <class T>
void sum_rows(const T* x, std::span<const int64_t> rows, std::span<const int64_t> starts, int64_t width, T* out) {
  const int64_t chunks = ceil_div(width, kMostElements);
  threads::for_each_range(static_cast<int64_t>(starts.size()) * chunks, 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t begin = i % chunks * kMostElements;
      const int64_t count = std::min(width - begin, kMostElements);
      add_rows(x + starts[i / chunks] + begin, rows, count, out + i / chunks * width + begin);
    }
  });
}

/// Floats in main memory as they are.
bool has_floats(const at::Tensor& x) {
  const bool floats = x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble;
  return floats && x.device().is_cpu() && !x.is_neg();
}

template <class T>
void sum_arrays(const std::vector<at::Tensor>& arrays, const at::Tensor& into) {
  std::vector<const T*> from;
  for (const at::Tensor& array : arrays) from.push_back(array.const_data_ptr<T>());
  T* const to = into.mutable_data_ptr<T>();
  threads::for_each_range(into.numel(), at::internal::GRAIN_SIZE, [&](int64_t first, int64_t last) {
    T total[kMostElements];
    for (int64_t begin = first; begin < last; begin += kMostElements) {
      const int64_t count = std::min(last - begin, kMostElements);
      std::copy_n(from[0] + begin, count, total);
      for (size_t a = 1; a < from.size(); ++a) {
        for (int64_t i = 0; i < count; ++i) total[i] += from[a][begin + i];
      }
      std::copy_n(total, count, to + begin);
    }
  });
}

}  // namespace

bool sum_in_order(const std::vector<at::Tensor>& arrays, const at::Tensor& into) {
  const bool alike = std::all_of(arrays.begin(), arrays.end(), [&](const at::Tensor& array) {
    return !array.is_neg() && array.is_contiguous() && array.options().type_equal(into.options()) &&
           array.sizes() == into.sizes();
  });
  if (!alike || !has_floats(into) || !into.is_contiguous()) return false;
  into.scalar_type() == at::kFloat ? sum_arrays<float>(arrays, into) : sum_arrays<double>(arrays, into);
  return true;
}

std::optional<at::Tensor> sum_of_rows(const at::Tensor& x, const Dims& axes) {
  if (!has_floats(x) || x.numel() == 0) return std::nullopt;
  const std::vector<Axis> summed = merged(x, axes);
  std::vector<Axis> retained;  // in the order of the result, of which the last ones are a row
  Dims shape;
  for (const int64_t axis : complement(axes, x.dim())) {
    shape.push_back(x.size(axis));
    if (x.size(axis) != 1) retained.push_back({x.size(axis), x.stride(axis)});
  }
  int64_t width = 1;
  while (!retained.empty() && retained.back().stride == width) {
    width *= retained.back().extent;
    retained.pop_back();
  }
  if (summed.size() < 2 || width == 1) return std::nullopt;
  at::Tensor out = at::empty(shape, x.options());
  const Dims rows = offsets(summed);
  const Dims starts = offsets(retained);
  if (x.scalar_type() == at::kFloat) {
    sum_rows(x.const_data_ptr<float>(), rows, starts, width, out.mutable_data_ptr<float>());
  } else {
    sum_rows(x.const_data_ptr<double>(), rows, starts, width, out.mutable_data_ptr<double>());
  }
  return out;
}

}  // namespace joinsum::kernels::dense

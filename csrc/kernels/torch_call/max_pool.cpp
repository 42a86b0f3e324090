// Max pools of images whose rows are adjacent in memory, which ATen goes through element by element.

#include <algorithm>
#include <array>
#include <limits>

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <torch/library.h>

#include "kernels/threads/parallel.h"

namespace joinsum::kernels::torch_call {
namespace {

using Two = std::tuple<at::Tensor, at::Tensor>;

/// A window along one axis, and the extents of the image before and after.
struct Axis {
  int64_t window, stride, padding, dilation, extent, results;

  /// The places of a result's window that are in the image: numbers in the window, first and one past the last.
  std::array<int64_t, 2> inside(int64_t result) const {
    const int64_t start = result * stride - padding;
    const int64_t first = start < 0 ? (-start + dilation - 1) / dilation : 0;
    const int64_t last = extent - 1 < start ? 0 : std::min(window, (extent - 1 - start) / dilation + 1);
    return {first, last};
  }
};

constexpr int64_t kColumns = 64;  ///< that are pooled at a time

/// Takes the larger of what there is and of a row's elements, `stride` apart, with their places; of equal ones the
/// first, and not a number before all others, as ATen does. `step` is `stride` where the compiler knows it, else 0.
template <int64_t step, class T>
void take_larger(const T* __restrict from, int32_t place, int64_t stride, int64_t count, T* __restrict largest,
                 int32_t* __restrict places) {
  const int64_t apart = step != 0 ? step : stride;
  for (int64_t i = 0; i < count; ++i) {
    const T x = from[i * apart];
    const T before = largest[i];
    const int32_t where = place + static_cast<int32_t>(i * apart);
    const bool taken = (x > before) | (x != x);
    largest[i] = taken ? x : before;
    places[i] = taken ? where : places[i];
  }
}

template <class T>
void pool_image(const T* image, const Axis& rows, const Axis& columns, T* out, int64_t* indices) {
  std::array<T, kColumns> largest;
  std::array<int32_t, kColumns> places;
  for (int64_t r = 0; r < rows.results; ++r) {
    const auto [first_row, last_row] = rows.inside(r);
    for (int64_t begin = 0; begin < columns.results; begin += kColumns) {
      const int64_t count = std::min(kColumns, columns.results - begin);
      const int64_t top = r * rows.stride - rows.padding + first_row * rows.dilation;
      for (int64_t i = 0; i < count; ++i) {
        const int64_t start = (begin + i) * columns.stride - columns.padding;
        const int64_t first = columns.inside(begin + i)[0];
        largest[static_cast<size_t>(i)] = -std::numeric_limits<T>::infinity();
        places[static_cast<size_t>(i)] = static_cast<int32_t>(top * columns.extent + start + first * columns.dilation);
      }
      for (int64_t row = first_row; row < last_row; ++row) {
        const int64_t y = r * rows.stride - rows.padding + row * rows.dilation;
        for (int64_t column = 0; column < columns.window; ++column) {
          // Results whose window has this column in the image.
          const int64_t offset = column * columns.dilation - columns.padding;
          const int64_t from = offset < 0 ? (-offset + columns.stride - 1) / columns.stride : 0;
          const int64_t to = columns.extent - 1 < offset ? 0 : (columns.extent - 1 - offset) / columns.stride + 1;
          const int64_t b = std::clamp<int64_t>(from - begin, 0, count);
          const int64_t e = std::clamp<int64_t>(to - begin, b, count);
          const int64_t place = y * columns.extent + offset + (begin + b) * columns.stride;
          T* const values = largest.data() + b;
          int32_t* const where = places.data() + b;
          if (columns.stride == 2) {
            take_larger<2>(image + place, static_cast<int32_t>(place), 2, e - b, values, where);
          } else if (columns.stride == 1) {
            take_larger<1>(image + place, static_cast<int32_t>(place), 1, e - b, values, where);
          } else {
            take_larger<0>(image + place, static_cast<int32_t>(place), columns.stride, e - b, values, where);
          }
        }
      }
      std::copy_n(largest.data(), count, out + r * columns.results + begin);
      std::copy_n(places.data(), count, indices + r * columns.results + begin);
    }
  }
}

/// ATen's max pool of [*b, h, w], and where in its image each element was.
Two max_pool2d(const at::Tensor& x, at::IntArrayRef window, at::IntArrayRef stride, at::IntArrayRef padding,
               at::IntArrayRef dilation, bool ceil_mode) {
  const bool takes = (x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble) && x.is_cpu() &&
                     x.is_contiguous() && x.numel() > 0 && x.dim() >= 3 &&
                     x.size(-1) * x.size(-2) <= std::numeric_limits<int32_t>::max();
  if (!takes) return at::max_pool2d_with_indices(x, window, stride, padding, dilation, ceil_mode);
  const auto each = [](at::IntArrayRef given, size_t axis) { return given.size() == 1 ? given[0] : given[axis]; };
  // ATen checks the arguments, and says the shape.
  const at::Tensor shape = at::max_pool2d(at::empty_symint(x.sym_sizes(), x.options().device(at::kMeta)), window,
                                          stride, padding, dilation, ceil_mode);
  const auto axis_of = [&](size_t axis) {
    const auto dim = static_cast<int64_t>(axis) - 2;
    return Axis{each(window, axis),  each(stride.empty() ? window : stride, axis),
                each(padding, axis), each(dilation, axis),
                x.size(dim),         shape.size(dim)};
  };
  const Axis rows = axis_of(0), columns = axis_of(1);
  at::Tensor out = at::empty(shape.sizes(), x.options());
  at::Tensor indices = at::empty(shape.sizes(), x.options().dtype(at::kLong));
  const int64_t results = rows.results * columns.results;
  const int64_t images = out.numel() / std::max<int64_t>(1, results);
  constexpr int64_t kWork = 32'768;  // of elements that are compared, for a thread
  const int64_t grain = std::max<int64_t>(1, kWork / std::max<int64_t>(1, results * rows.window * columns.window));
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "max_pool2d", [&] {
    const scalar_t* from = x.const_data_ptr<scalar_t>();
    scalar_t* to = out.mutable_data_ptr<scalar_t>();
    int64_t* places = indices.mutable_data_ptr<int64_t>();
    threads::for_each_range(images, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        pool_image(from + i * rows.extent * columns.extent, rows, columns, to + i * results, places + i * results);
      }
    });
  });
  return {out, indices};
}

TORCH_LIBRARY_FRAGMENT(joinsum, library) {
  library.def(
      "max_pool2d(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, int[2] dilation=1, bool "
      "ceil_mode=False) -> (Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(joinsum, CompositeExplicitAutograd, library) { library.impl("max_pool2d", &max_pool2d); }

}  // namespace
}  // namespace joinsum::kernels::torch_call

#include "sparse/tensor/transpose.h"

#include <numeric>

#include "sparse/tensor/elements.h"
#include "sparse/tensor/levels.h"

namespace joinsum::sparse::tensor {
namespace {

/// Where the entries of each coordinate of a list begin if they are sorted by it.
std::vector<int64_t> beginnings(const Level& list) {
  std::vector<int64_t> begins(list.size + 1, 0);
  for (const int64_t coordinate : list.coordinates) ++begins[coordinate + 1];
  std::inclusive_scan(begins.begin(), begins.end(), begins.begin());
  return begins;
}

/// The coordinate of each fiber of the last level.
std::vector<int64_t> fiber_coordinates(const Level& first, int64_t fibers) {
  if (lists_coordinates(first.format)) return {first.coordinates.begin(), first.coordinates.end()};
  std::vector<int64_t> out(fibers);
  std::iota(out.begin(), out.end(), int64_t{0});
  return out;
}

}  // namespace

bool transposes(const Tensor& tensor, const std::vector<int64_t>& axes, const std::vector<LevelFormat>& formats) {
  return tensor.rank() == 2 && axes.front() == tensor.axes.back() && formats.front() == LevelFormat::kDense &&
         lists_coordinates(formats.back()) && lists_coordinates(tensor.levels.back().format);
}

Tensor transposed_levels(const Tensor& matrix, int64_t largest) {
  const Level& first = matrix.levels.front();
  const Level& list = matrix.levels.back();
  checked_entries(0, LevelFormat::kDense, 1, list.size, int64_t{sizeof(int64_t)}, largest);
  const std::vector<int64_t> begins = beginnings(list);
  const int64_t fibers = list.offsets.size() - 1;
  const std::vector<int64_t> outer = fiber_coordinates(first, fibers);
  std::vector<int64_t> coordinates(list.coordinates.size());
  Tensor out{.shape = matrix.shape, .axes = {matrix.axes[1], matrix.axes[0]}, .fill = matrix.fill};
  out.values = with_element_type("sparse tensor", matrix.dtype(), [&](auto zero) {
    using T = decltype(zero);
    ValueBuffer<T> values(list.coordinates.size());
    const T* from = matrix.values.as<T>();
    std::vector<int64_t> next = begins;
    for (int64_t p = 0; p < fibers; ++p) {
      for (int64_t e = list.offsets[p]; e < list.offsets[p + 1]; ++e) {
        const int64_t place = next[list.coordinates[e]]++;
        coordinates[place] = outer[p];
        values.data()[place] = from[e];
      }
    }
    return values.take(matrix.dtype());
  });
  out.levels.push_back({.format = LevelFormat::kDense, .size = list.size});
  out.levels.push_back({.format = LevelFormat::kSortedList,
                        .size = first.size,
                        .offsets = begins,
                        .coordinates = std::move(coordinates)});
  return out;
}

}  // namespace joinsum::sparse::tensor

#include "sparse/tensor/diagonal.h"

#include <algorithm>

namespace joinsum::sparse::tensor {

Coordinates on_diagonals(const Coordinates& all, const std::vector<std::vector<int64_t>>& groups) {
  const int64_t width = byte_size(all.values.dtype);
  std::vector<std::vector<int64_t>> axes(groups.size());
  std::vector<std::byte> values;
  for (int64_t i = 0; i < all.count(); ++i) {
    const bool on = std::ranges::all_of(groups, [&](const std::vector<int64_t>& group) {
      return std::ranges::all_of(group, [&](int64_t axis) { return all.axes[axis][i] == all.axes[group.front()][i]; });
    });
    if (!on) continue;
    for (size_t g = 0; g < groups.size(); ++g) axes[g].push_back(all.axes[groups[g].front()][i]);
    values.insert(values.end(), all.values.bytes.data() + i * width, all.values.bytes.data() + (i + 1) * width);
  }
  Coordinates out;
  for (size_t g = 0; g < groups.size(); ++g) {
    out.shape.push_back(all.shape[groups[g].front()]);
    out.axes.emplace_back(std::move(axes[g]));
  }
  out.values = {all.values.dtype, Array<std::byte>(std::move(values))};
  return out;
}

}  // namespace joinsum::sparse::tensor

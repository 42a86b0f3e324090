#include "sparse/statistics/degrees.h"

#include <algorithm>

#include "sparse/tensor/by_tensor.h"
#include "sparse/tensor/levels.h"

namespace joinsum::sparse::statistics {
namespace {

/// Up to so many coordinates of an axis for each element, these are counted coordinate by coordinate.
constexpr int64_t kExtentPerElement = 8;

AxisDegrees counted(const tensor::Array<int64_t>& coordinates, int64_t extent) {
  AxisDegrees out;
  if (extent / kExtentPerElement <= coordinates.size()) {
    std::vector<int64_t> elements(extent);
    for (const int64_t coordinate : coordinates) ++elements[coordinate];
    for (const int64_t each : elements) out.add(each);
    return out;
  }
  std::vector<int64_t> sorted(coordinates.begin(), coordinates.end());
  std::ranges::sort(sorted);
  for (auto begin = sorted.begin(); begin != sorted.end();) {
    const auto end = std::upper_bound(begin, sorted.end(), *begin);
    out.add(end - begin);
    begin = end;
  }
  return out;
}

/// Elements below each entry of a level: those from `begins[entry]` to the next one's; one each where it is null.
struct ElementsBelow {
  const int64_t* begins = nullptr;
  std::vector<int64_t> own = {};

  int64_t operator[](int64_t entry) const { return begins == nullptr ? 1 : begins[entry + 1] - begins[entry]; }

  /// Those below the lists of a level, by those below its entries.
  ElementsBelow above(const tensor::Level& level) const {
    if (begins == nullptr) return {tensor::has_single_entries(level) ? nullptr : level.offsets.data()};
    ElementsBelow out;
    out.own.reserve(level.offsets.size());
    for (const int64_t offset : level.offsets) out.own.push_back(begins[offset]);
    out.begins = out.own.data();
    return out;
  }
};

/// The distinct coordinates of a level, and the most elements that share one.
AxisDegrees counted(const tensor::Level& level, const ElementsBelow& below, bool outermost) {
  const bool dense = level.format == tensor::LevelFormat::kDense;
  const int64_t entries = dense ? level.size : level.coordinates.size();
  AxisDegrees out;
  if (outermost) {  // each coordinate once
    for (int64_t entry = 0; entry < entries; ++entry) out.add(below[entry]);
    return out;
  }
  std::vector<int64_t> elements(level.size);
  for (int64_t entry = 0; entry < entries; ++entry) elements[level.coordinates[entry]] += below[entry];
  for (const int64_t each : elements) out.add(each);
  return out;
}

/// Whether degrees are counted from the levels, without the coordinates of each element: of lists, the outermost of
/// which may be dense instead, with axes that are not much longer than there are entries.
bool counts_by_levels(const Tensor& tensor) {
  for (size_t l = 0; l < tensor.levels.size(); ++l) {
    const tensor::Level& level = tensor.levels[l];
    const bool lists = level.format == tensor::LevelFormat::kSortedList || level.format == tensor::LevelFormat::kHash;
    if (!lists && !(l == 0 && level.format == tensor::LevelFormat::kDense)) return false;
    if (l > 0 && level.size / kExtentPerElement > level.coordinates.size()) return false;
  }
  return true;
}

std::vector<AxisDegrees> counted(const Tensor& tensor) {
  std::vector<AxisDegrees> out;
  const bool whole = std::ranges::all_of(
      tensor.levels, [](const tensor::Level& level) { return level.format == tensor::LevelFormat::kDense; });
  if (whole) {
    const auto elements = static_cast<double>(tensor.stored());
    for (const int64_t extent : tensor.shape) {
      out.push_back(
          {elements == 0 ? 0 : static_cast<double>(extent), elements / std::max(1.0, static_cast<double>(extent))});
    }
    return out;
  }
  if (counts_by_levels(tensor)) {
    out.resize(tensor.levels.size());
    ElementsBelow below;
    for (int64_t l = std::ssize(tensor.levels) - 1; l >= 0; --l) {
      out[tensor.axes[l]] = counted(tensor.levels[l], below, l == 0);
      if (l > 0) below = below.above(tensor.levels[l]);
    }
    return out;
  }
  const Coordinates coordinates = to_coordinates(tensor);
  for (size_t axis = 0; axis < coordinates.axes.size(); ++axis) {
    out.push_back(counted(coordinates.axes[axis], tensor.shape[axis]));
  }
  return out;
}

}  // namespace

std::vector<AxisDegrees> degrees_of(const std::shared_ptr<const Tensor>& tensor) {
  static tensor::ByTensor<std::vector<AxisDegrees>> known;
  return known.of(tensor, [](const Tensor& each) { return counted(each); });
}

}  // namespace joinsum::sparse::statistics

#include <algorithm>
#include <numeric>

#include "sparse/tensor/elements.h"
#include "sparse/tensor/levels.h"
#include "sparse/tensor/order.h"
#include "sparse/tensor/tensor.h"

namespace joinsum::sparse::tensor {
namespace {

/// Stored entries of one level in ascending order.
struct LevelEntries {
  std::vector<int64_t> entries;
  std::vector<int64_t> coordinates;
  std::vector<int64_t> above;  ///< of each, the position of its fiber among the stored entries of the level above

  int64_t count() const { return static_cast<int64_t>(entries.size()); }
  void reserve(int64_t count) {
    entries.reserve(count);
    coordinates.reserve(count);
    above.reserve(count);
  }
  void add(int64_t entry, int64_t coordinate, int64_t position) {
    entries.push_back(entry);
    coordinates.push_back(coordinate);
    above.push_back(position);
  }
};

/// Room for the stored entries of a level; none is set aside for those of a dense one that `some` may leave out.
int64_t expected_entries(const Level& level, int64_t fibers, bool some) {
  if (lists_coordinates(level.format)) return level.coordinates.size();
  if (level.format == LevelFormat::kDense) return some ? 0 : fibers * level.size;
  return std::count(level.stored.begin(), level.stored.end(), uint8_t{1});
}

/// The stored entries below these fibers for which `keeps(entry)`.
template <class Keeps>
void add_entries(const Level& level, const std::vector<int64_t>& fibers, const Keeps& keeps, LevelEntries& out) {
  for (size_t i = 0; i < fibers.size(); ++i) {
    const int64_t fiber = fibers[i];
    const auto position = static_cast<int64_t>(i);
    if (lists_coordinates(level.format)) {
      for (int64_t e = level.offsets[fiber]; e < level.offsets[fiber + 1]; ++e) {
        if (keeps(e)) out.add(e, level.coordinates[e], position);
      }
      continue;
    }
    for (int64_t c = 0; c < level.size; ++c) {
      const int64_t entry = fiber * level.size + c;
      if ((level.format == LevelFormat::kDense || level.stored[entry] != 0) && keeps(entry)) {
        out.add(entry, c, position);
      }
    }
  }
}

/// Calls `visit` with a predicate of positions of values: whether the value there differs from the fill.
template <class Visit>
void with_differing(const Tensor& tensor, const Visit& visit) {
  with_element_type("sparse tensor", tensor.dtype(), [&](auto zero) {
    using T = decltype(zero);
    visit([values = tensor.values.as<T>(), fill = T(tensor.fill)](int64_t e) { return !same_value(values[e], fill); });
  });
}

LevelEntries entries_below(const Tensor& tensor, int64_t l, const std::vector<int64_t>& fibers, bool without_fill) {
  const Level& level = tensor.levels[l];
  LevelEntries out;
  out.reserve(expected_entries(level, static_cast<int64_t>(fibers.size()), without_fill));
  if (!without_fill) {
    add_entries(level, fibers, [](int64_t) { return true; }, out);
    return out;
  }
  with_differing(tensor, [&](const auto& differs) { add_entries(level, fibers, differs, out); });
  return out;
}

/// The stored entries of each level, those of the last one without those at the fill on demand.
std::vector<LevelEntries> entries_of_levels(const Tensor& tensor, bool without_fill) {
  std::vector<LevelEntries> out;
  const std::vector<int64_t> root{0};
  for (int64_t l = 0; l < tensor.rank(); ++l) {
    const bool last = l + 1 == tensor.rank();
    out.push_back(entries_below(tensor, l, l == 0 ? root : out.back().entries, last && without_fill));
  }
  return out;
}

/// Coordinates in the order of the levels.
Coordinates in_level_order(const Tensor& tensor, bool without_fill) {
  std::vector<LevelEntries> levels = entries_of_levels(tensor, without_fill);
  Coordinates out{.shape = tensor.shape, .axes = std::vector<Array<int64_t>>(tensor.rank())};
  const std::vector<int64_t>& entries = levels.back().entries;
  const bool all = levels.back().count() == tensor.values.count();
  out.values = all ? tensor.values : gathered(tensor.values, entries);
  std::vector<int64_t> positions = std::move(levels.back().above);
  out.axes[tensor.axes.back()] = std::move(levels.back().coordinates);
  for (int64_t l = tensor.rank() - 2; l >= 0; --l) {
    out.axes[tensor.axes[l]] = gathered(levels[l].coordinates, positions);
    if (l > 0) positions = gathered(levels[l].above, positions);
  }
  return out;
}

bool is_stored(const Tensor& scalar, bool without_fill) {
  bool stored = scalar.scalar_stored;
  if (without_fill) with_differing(scalar, [&](const auto& differs) { stored = stored && differs(0); });
  return stored;
}

}  // namespace

Coordinates to_coordinates(const Tensor& tensor, bool without_fill) {
  if (tensor.levels.empty()) {
    return {.values = is_stored(tensor, without_fill) ? tensor.values : gathered(tensor.values, {})};
  }
  Coordinates out = in_level_order(tensor, without_fill);
  if (std::is_sorted(tensor.axes.begin(), tensor.axes.end())) return out;
  Ascending elements = sorted({.data = out.axes, .sizes = out.shape, .count = out.count()});
  if (elements.places.empty()) return out;
  out.axes = std::move(elements.columns.data);
  out.values = gathered(out.values, elements.places);
  return out;
}

}  // namespace joinsum::sparse::tensor

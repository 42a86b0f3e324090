#include <algorithm>
#include <numeric>

#include "sparse/tensor/levels.h"
#include "sparse/tensor/tensor.h"
#include "sparse/tensor/transpose.h"

namespace joinsum::sparse::tensor {
namespace {

Level as_list(Level level) {
  level.format = LevelFormat::kSortedList;
  level.table = nullptr;
  return level;
}

/// Adds and drops the tables of hash levels.
Tensor with_tables(Tensor tensor, const std::vector<LevelFormat>& formats) {
  for (size_t l = 0; l < formats.size(); ++l) {
    Level& level = tensor.levels[l];
    if (level.format == formats[l]) continue;
    level = formats[l] == LevelFormat::kHash ? with_hash_table(level) : as_list(level);
  }
  return tensor;
}

/// Whether formats differ in the first level alone, a list in place of a dense level or the other way round, above
/// lists: these stay as they are, but for lists of no entry.
bool changes_first_level(const Tensor& tensor, const std::vector<int64_t>& axes,
                         const std::vector<LevelFormat>& formats) {
  if (axes != tensor.axes || formats.size() < 2) return false;
  const LevelFormat first = tensor.levels[0].format;
  const bool to_list = first == LevelFormat::kDense && lists_coordinates(formats[0]);
  const bool to_dense = lists_coordinates(first) && formats[0] == LevelFormat::kDense;
  if (!to_list && !to_dense) return false;
  for (size_t l = 1; l < formats.size(); ++l) {
    if (!lists_coordinates(formats[l]) || !lists_coordinates(tensor.levels[l].format)) return false;
  }
  return true;
}

/// The first level as a list of the entries that have any below.
void list_first_level(Tensor& tensor) {
  const Level& below = tensor.levels[1];
  std::vector<int64_t> coordinates, offsets{0};
  for (int64_t fiber = 0; fiber + 1 < below.offsets.size(); ++fiber) {
    if (below.offsets[fiber] == below.offsets[fiber + 1]) continue;
    coordinates.push_back(fiber);
    offsets.push_back(below.offsets[fiber + 1]);
  }
  const auto entries = std::ssize(coordinates);
  tensor.levels[0] = {.format = LevelFormat::kSortedList,
                      .size = tensor.levels[0].size,
                      .offsets = {0, entries},
                      .coordinates = std::move(coordinates),
                      .single = entries == 1};
  tensor.levels[1] = {.format = LevelFormat::kSortedList,
                      .size = below.size,
                      .offsets = std::move(offsets),
                      .coordinates = below.coordinates,
                      .single = below.coordinates.size() == entries};
}

/// The first level as a dense one.
void fill_first_level(Tensor& tensor, int64_t largest) {
  const Level list = tensor.levels[0];
  const Level& below = tensor.levels[1];
  checked_entries(0, LevelFormat::kDense, 1, list.size, sizeof(int64_t), largest);
  std::vector<int64_t> offsets(list.size + 1);
  for (int64_t e = 0; e < list.coordinates.size(); ++e) {
    offsets[list.coordinates[e] + 1] = below.offsets[e + 1] - below.offsets[e];
  }
  std::inclusive_scan(offsets.begin(), offsets.end(), offsets.begin());
  tensor.levels[0] = {.format = LevelFormat::kDense, .size = list.size};
  tensor.levels[1] = {.format = LevelFormat::kSortedList,
                      .size = below.size,
                      .offsets = std::move(offsets),
                      .coordinates = below.coordinates,
                      .single = below.single && list.coordinates.size() == list.size};
}

}  // namespace

bool same_entries(const Tensor& tensor, const std::vector<int64_t>& axes, const std::vector<LevelFormat>& formats) {
  return axes == tensor.axes &&
         std::equal(formats.begin(), formats.end(), tensor.levels.begin(), [](LevelFormat format, const Level& level) {
           return format == level.format || (lists_coordinates(format) && lists_coordinates(level.format));
         });
}

Tensor reformatted(const Tensor& tensor, const std::vector<int64_t>& axes, const std::vector<LevelFormat>& formats,
                   int64_t largest) {
  check_order(tensor.shape, axes, static_cast<int64_t>(formats.size()));
  if (same_entries(tensor, axes, formats)) return with_tables(tensor, formats);
  if (transposes(tensor, axes, formats)) return with_tables(transposed_levels(tensor, largest), formats);
  if (changes_first_level(tensor, axes, formats)) {
    Tensor changed = tensor;
    formats[0] == LevelFormat::kDense ? fill_first_level(changed, largest) : list_first_level(changed);
    return with_tables(std::move(changed), formats);
  }
  // Elements of dense blocks are stored whether or not they differ from the fill; those of other levels were chosen.
  const bool without_fill = tensor.levels.back().format == LevelFormat::kDense;
  return from_coordinates(to_coordinates(tensor, without_fill), axes, formats, tensor.fill, {}, largest);
}

}  // namespace joinsum::sparse::tensor

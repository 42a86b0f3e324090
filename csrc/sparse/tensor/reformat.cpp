#include <algorithm>

#include "sparse/tensor/levels.h"
#include "sparse/tensor/tensor.h"
#include "sparse/tensor/transpose.h"

namespace joinsum::sparse::tensor {
namespace {

/// Whether the formats differ at most in whether a list has a hash table, so that all entries stay where they are.
bool same_entries(const Tensor& tensor, const std::vector<int64_t>& axes, const std::vector<LevelFormat>& formats) {
  return axes == tensor.axes &&
         std::equal(formats.begin(), formats.end(), tensor.levels.begin(), [](LevelFormat format, const Level& level) {
           return format == level.format || (lists_coordinates(format) && lists_coordinates(level.format));
         });
}

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

}  // namespace

Tensor reformatted(const Tensor& tensor, const std::vector<int64_t>& axes, const std::vector<LevelFormat>& formats,
                   int64_t largest) {
  check_order(tensor.shape, axes, static_cast<int64_t>(formats.size()));
  if (same_entries(tensor, axes, formats)) return with_tables(tensor, formats);
  if (transposes(tensor, axes, formats)) return with_tables(transposed_levels(tensor, largest), formats);
  // Elements of dense blocks are stored whether or not they differ from the fill; those of other levels were chosen.
  const bool without_fill = tensor.levels.back().format == LevelFormat::kDense;
  return from_coordinates(to_coordinates(tensor, without_fill), axes, formats, tensor.fill, {}, largest);
}

}  // namespace joinsum::sparse::tensor

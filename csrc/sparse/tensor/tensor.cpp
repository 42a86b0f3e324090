#include "sparse/tensor/tensor.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace joinsum::sparse::tensor {
namespace {

const std::array<std::string, 4>& format_names() {
  static const std::array<std::string, 4> names{"dense", "bytemap", "sorted_list", "hash"};
  return names;
}

/// Elements that the levels up to `level` store, a dense one all of its fibers'.
int64_t stored_to(const std::vector<Level>& levels, int64_t level) {
  int64_t copies = 1;
  for (; level >= 0 && levels[level].format == LevelFormat::kDense; --level) copies *= levels[level].size;
  if (level < 0) return copies;
  const Level& last = levels[level];
  if (last.format != LevelFormat::kBytemap) return copies * last.coordinates.size();
  return copies * std::count(last.stored.begin(), last.stored.end(), uint8_t{1});
}

}  // namespace

const std::string& name_of(LevelFormat format) { return format_names()[static_cast<size_t>(format)]; }

LevelFormat level_format_named(const std::string& name) {
  const auto found = std::find(format_names().begin(), format_names().end(), name);
  JOINSUM_USER_CHECK(found != format_names().end(), "sparse tensor: no such level format: name=", name,
                     ", formats=[dense, bytemap, sorted_list, hash]");
  return static_cast<LevelFormat>(found - format_names().begin());
}

int64_t Level::entries(int64_t fibers) const {
  const bool all = format == LevelFormat::kDense || format == LevelFormat::kBytemap;
  return all ? fibers * size : coordinates.size();
}

int64_t Tensor::stored() const {
  return levels.empty() ? int64_t{scalar_stored} : stored_to(levels, static_cast<int64_t>(levels.size()) - 1);
}

int64_t Tensor::bytes() const {
  int64_t total = values.bytes.size();
  for (const Level& level : levels) {
    const int64_t words = level.offsets.size() + level.coordinates.size();
    total += words * static_cast<int64_t>(sizeof(int64_t)) + level.stored.size();
    if (level.table != nullptr) total += level.table->bytes();
  }
  return total;
}

}  // namespace joinsum::sparse::tensor

#include "sparse/tensor/levels.h"

#include <algorithm>
#include <bit>
#include <numeric>

namespace joinsum::sparse::tensor {
namespace {

std::vector<int64_t> parents_of(const Array<int64_t>& offsets, int64_t entries) {
  std::vector<int64_t> parents(entries);
  for (int64_t p = 0; p + 1 < offsets.size(); ++p) {
    std::fill(parents.begin() + offsets[p], parents.begin() + offsets[p + 1], p);
  }
  return parents;
}

uint64_t slots_of(int64_t entries) { return std::bit_ceil(static_cast<uint64_t>(2 * std::max<int64_t>(entries, 1))); }

}  // namespace

bool has_single_entries(const Level& level) {
  if (level.single) return true;
  const Array<int64_t>& offsets = level.offsets;
  if (!lists_coordinates(level.format) || offsets.size() != level.coordinates.size() + 1) return false;
  for (int64_t fiber = 0; fiber < offsets.size(); ++fiber) {
    if (offsets[fiber] != fiber) return false;
  }
  return true;
}

void check_order(const Dims& shape, const std::vector<int64_t>& axes, int64_t formats) {
  for (size_t a = 0; a < shape.size(); ++a) {
    JOINSUM_USER_CHECK(shape[a] >= 0, "sparse tensor: negative size: axis=", a, ", shape=", shape);
  }
  std::vector<int64_t> sorted = axes;
  std::sort(sorted.begin(), sorted.end());
  JOINSUM_USER_CHECK(sorted == all_dims(static_cast<int64_t>(shape.size())),
                     "sparse tensor: the order is no permutation of the axes: order=", axes, ", shape=", shape);
  JOINSUM_USER_CHECK(formats == static_cast<int64_t>(shape.size()),
                     "sparse tensor: each axis needs one level: levels=", formats, ", shape=", shape);
}

HashTable::HashTable(Array<int64_t> offsets, Array<int64_t> coordinates)
    : offsets_(std::move(offsets)), coordinates_(std::move(coordinates)) {}

int64_t HashTable::bytes() const {
  const int64_t entries = coordinates_.size();
  return (static_cast<int64_t>(slots_of(entries)) + entries) * static_cast<int64_t>(sizeof(int64_t));
}

const HashTable::Arrays& HashTable::built() const {
  std::call_once(once_, [&] {
    const int64_t entries = coordinates_.size();
    arrays_.parents = parents_of(offsets_, entries);
    arrays_.slots.assign(slots_of(entries), -1);
    const uint64_t mask = arrays_.slots.size() - 1;
    for (int64_t e = 0; e < entries; ++e) {
      uint64_t slot = hash_of_coordinate(arrays_.parents[e], coordinates_[e]) & mask;
      while (arrays_.slots[slot] >= 0) slot = (slot + 1) & mask;
      arrays_.slots[slot] = e;
    }
  });
  return arrays_;
}

Level with_hash_table(const Level& list) {
  Level level = list;
  level.format = LevelFormat::kHash;
  level.table = std::make_shared<const HashTable>(list.offsets, list.coordinates);
  return level;
}

int64_t checked_entries(int64_t level, LevelFormat format, int64_t fibers, int64_t size, int64_t entry_bytes,
                        int64_t largest) {
  int64_t entries = 0;
  JOINSUM_USER_CHECK(!__builtin_mul_overflow(fibers, size, &entries),
                     "sparse tensor: entries of a level exceed 64 bits: level=", level, ", format=", name_of(format),
                     ", fibers=", fibers, ", size=", size);
  JOINSUM_USER_CHECK(entry_bytes == 0 || entries <= largest / entry_bytes,
                     "sparse tensor: a level would hold too many bytes: level=", level, ", format=", name_of(format),
                     ", entries=", entries, ", bytes an entry=", entry_bytes, ", largest=", largest);
  return entries;
}

}  // namespace joinsum::sparse::tensor

#pragma once

#include <string>
#include <vector>

#include "sparse/tensor/tensor.h"

namespace joinsum::sparse::tensor {

/// Whether a level lists its coordinates: a sorted list or a hash table.
inline bool lists_coordinates(LevelFormat format) {
  return format == LevelFormat::kSortedList || format == LevelFormat::kHash;
}

/// Whether a level lists one coordinate in each fiber.
bool has_single_entries(const Level& level);

/// Raises PlanError unless extents are not negative, `axes` is a permutation of them and there is a format for each.
void check_order(const Dims& shape, const std::vector<int64_t>& axes, int64_t formats);

/// The level as a hash level, whose table is built when it is first read.
Level with_hash_table(const Level& list);

/// Entries of a dense or bytemap level; raises PlanError where they exceed 64 bits or, at `entry_bytes` each,
/// `largest`.
int64_t checked_entries(int64_t level, LevelFormat format, int64_t fibers, int64_t size, int64_t entry_bytes,
                        int64_t largest);

}  // namespace joinsum::sparse::tensor

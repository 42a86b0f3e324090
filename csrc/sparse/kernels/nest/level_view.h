#pragma once

#include <algorithm>
#include <cstdint>

#include "sparse/tensor/tensor.h"

/// Reading a level of an operand: lookups and walks.
namespace joinsum::sparse::kernels::nest {

using tensor::hash_of_coordinate;
using tensor::Level;
using tensor::LevelFormat;
using tensor::Tensor;

/// A level's arrays as pointers, which the loops read.
struct LevelView {
  LevelFormat format = LevelFormat::kDense;
  int64_t size = 0;
  const int64_t* offsets = nullptr;
  const int64_t* coordinates = nullptr;
  const uint8_t* stored = nullptr;
  const int64_t* slots = nullptr;
  const int64_t* parents = nullptr;
  uint64_t mask = 0;
  bool single = false;

  LevelView() = default;
  /// `looked_up`: a hash level's table, which may have to be built, is part of it.
  LevelView(const Level& level, bool looked_up)
      : format(level.format),
        size(level.size),
        offsets(level.offsets.data()),
        coordinates(level.coordinates.data()),
        stored(level.stored.data()),
        single(level.single) {
    if (!looked_up || level.format != LevelFormat::kHash) return;
    slots = level.table->slots().data();
    parents = level.table->parents().data();
    mask = level.table->slots().size() - 1;
  }

  /// Where the entries of a fiber begin in a list; those of the one before end there.
  int64_t begin(int64_t fiber) const { return single ? fiber : offsets[fiber]; }

  bool lists() const { return format == LevelFormat::kSortedList || format == LevelFormat::kHash; }
};

/// The first entry in [at, end) whose coordinate is at least `coordinate`, looked for in doubling steps from `at`.
inline int64_t gallop(const int64_t* coordinates, int64_t at, int64_t end, int64_t coordinate) {
  if (at >= end || coordinates[at] >= coordinate) return at;
  int64_t step = 1;
  while (at + step < end && coordinates[at + step] < coordinate) {
    at += step;
    step *= 2;
  }
  const int64_t* last = coordinates + std::min(at + step, end);
  return std::lower_bound(coordinates + at + 1, last, coordinate) - coordinates;
}

inline int64_t find_hashed(const LevelView& level, int64_t fiber, int64_t coordinate) {
  for (uint64_t slot = hash_of_coordinate(fiber, coordinate) & level.mask;; slot = (slot + 1) & level.mask) {
    const int64_t entry = level.slots[slot];
    if (entry < 0 || (level.coordinates[entry] == coordinate && level.parents[entry] == fiber)) return entry;
  }
}

/// Looks up ascending coordinates of one fiber.
struct Search {
  int64_t fiber = -1;  ///< -1: the operand is absent
  int64_t at = 0;      ///< sorted list: the first entry that may have the next coordinate
  int64_t end = 0;

  void start(const LevelView& level, int64_t of_fiber) {
    fiber = of_fiber;
    if (fiber < 0 || level.format != LevelFormat::kSortedList) return;
    at = level.begin(fiber);
    end = level.begin(fiber + 1);
  }

  /// The entry of a coordinate, or -1.
  template <LevelFormat kFormat>
  int64_t find(const LevelView& level, int64_t coordinate) {
    if constexpr (kFormat == LevelFormat::kDense) {
      return fiber * level.size + coordinate;
    } else if constexpr (kFormat == LevelFormat::kBytemap) {
      const int64_t entry = fiber * level.size + coordinate;
      return level.stored[entry] ? entry : -1;
    } else if constexpr (kFormat == LevelFormat::kSortedList) {
      at = gallop(level.coordinates, at, end, coordinate);
      return at < end && level.coordinates[at] == coordinate ? at : -1;
    } else {
      return find_hashed(level, fiber, coordinate);
    }
  }

  int64_t find(const LevelView& level, int64_t coordinate) {
    if (fiber < 0) return -1;
    switch (level.format) {
      case LevelFormat::kDense:
        return find<LevelFormat::kDense>(level, coordinate);
      case LevelFormat::kBytemap:
        return find<LevelFormat::kBytemap>(level, coordinate);
      case LevelFormat::kSortedList:
        return find<LevelFormat::kSortedList>(level, coordinate);
      default:
        return find<LevelFormat::kHash>(level, coordinate);
    }
  }
};

/// Walks the stored coordinates of one fiber in [lower, upper).
struct Walk {
  static constexpr int64_t kPastAll = std::numeric_limits<int64_t>::max();

  int64_t coordinate = kPastAll;
  int64_t entry = 0;
  int64_t end = 0;  ///< past the last entry

  void start(const LevelView& level, int64_t fiber, int64_t lower, int64_t upper) {
    coordinate = kPastAll;
    if (fiber < 0 || lower >= upper) return;
    if (level.lists()) {
      const int64_t* begin = level.coordinates + level.begin(fiber);
      const int64_t* past = level.coordinates + level.begin(fiber + 1);
      if (lower > 0) begin = std::lower_bound(begin, past, lower);
      if (upper < level.size) past = std::lower_bound(begin, past, upper);
      entry = begin - level.coordinates;
      end = past - level.coordinates;
      if (entry < end) coordinate = *begin;
      return;
    }
    entry = fiber * level.size + lower;
    end = fiber * level.size + upper;
    coordinate = lower;
    skip_absent(level);
  }

  void next(const LevelView& level) {
    ++entry;
    if (level.lists()) {
      coordinate = entry < end ? level.coordinates[entry] : kPastAll;
      return;
    }
    ++coordinate;
    skip_absent(level);
  }

 private:
  void skip_absent(const LevelView& level) {
    if (level.format == LevelFormat::kBytemap) {
      while (entry < end && !level.stored[entry]) {
        ++entry;
        ++coordinate;
      }
    }
    if (entry >= end) coordinate = kPastAll;
  }
};

}  // namespace joinsum::sparse::kernels::nest

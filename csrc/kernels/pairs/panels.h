#pragma once

#include <algorithm>
#include <cstring>
#include <limits>

#include <ATen/core/LegacyTypeDispatch.h>

#include "kernels/pairs/pairs.h"
#include "kernels/semiring/pair_tiles.h"
#include "kernels/threads/parallel.h"

/// What the sources that run a PairProblem on the CPU share: how operands are packed, and how the work is divided.
namespace joinsum::kernels::pairs {

/// Indices of k in a panel: 256 of two vectors fill a first-level cache's greater part.
constexpr int64_t kInner = 256;

/// The widest tiles that torch uses this processor's instructions for (ATEN_CPU_CAPABILITY narrows them).
semiring::Tiles tiles_for(semiring::Join join, semiring::Reduction reduction, semiring::Type type);

/// What a packed operand holds besides finite numbers.
struct Contents {
  bool nan = false;
  bool positive = false;  ///< infinity
  bool negative = false;
};

template <class T>
Contents contents_of(const T* values, int64_t count) {
  Contents out;
  if constexpr (std::is_floating_point_v<T>) {
    constexpr T kInfinity = std::numeric_limits<T>::infinity();
    int nan = 0, positive = 0, negative = 0;
    for (int64_t i = 0; i < count; ++i) {
      nan |= values[i] != values[i];
      positive |= values[i] == kInfinity;
      negative |= values[i] == -kInfinity;
    }
    out = {nan != 0, positive != 0, negative != 0};
  }
  return out;
}

/// Whether elements of such operands may combine to what is not a number.
bool may_give_nan(semiring::Join join, const Contents& left, const Contents& right);

/// Whether the indices lie one after the other.
bool adjacent(const int64_t* offsets, int64_t count);

/// Writes panels of `width` rows (or columns) one after the other, index by index of k; zeros fill the last one.
template <class T>
void pack(const T* from, const Dims& across, const Dims& inner, int64_t width, T* to) {
  const auto total = static_cast<int64_t>(across.size()), depth = static_cast<int64_t>(inner.size());
  for (int64_t first = 0; first < total; first += width, to += width * depth) {
    const int64_t* offsets = across.data() + first;
    const int64_t present = std::min(width, total - first);
    if (present < width) std::memset(to, 0, static_cast<size_t>(width * depth) * sizeof(T));
    if (adjacent(offsets, present)) {
      for (int64_t k = 0; k < depth; ++k) {
        std::memcpy(to + k * width, from + offsets[0] + inner[k], static_cast<size_t>(present) * sizeof(T));
      }
    } else {
      for (int64_t i = 0; i < present; ++i) {
        for (int64_t k = 0; k < depth; ++k) to[k * width + i] = from[offsets[i] + inner[k]];
      }
    }
  }
}

/// The part of a problem that one thread computes: a rectangle of the result for one index of the batch.
struct Part {
  int64_t batch;
  int64_t first_row, rows;
  int64_t first_column, columns;
};

/// The pieces that each index of the batch is cut into, and their number in all.
struct Cut {
  bool rows;
  int64_t each;
  int64_t pieces;
};

Cut cut_of(const PairProblem& problem);
Part part_of(const PairProblem& problem, const Cut& cut, int64_t index);

/// Runs a problem on torch's threads, each with a `Worker` of its own.
template <class Worker>
void run_by(const PairProblem& problem) {
  const Cut cut = cut_of(problem);
  threads::for_each_range(cut.pieces, [&](int64_t begin, int64_t end) {
    const at::AutoDispatchBelowADInplaceOrView without_autograd;
    Worker worker(problem);
    for (int64_t index = begin; index < end; ++index) worker.run(part_of(problem, cut, index));
  });
}

/// Runs a problem whose tiles have two planes.
void run_planes(const PairProblem& problem);

}  // namespace joinsum::kernels::pairs

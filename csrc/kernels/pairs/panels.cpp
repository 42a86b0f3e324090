#include "kernels/pairs/panels.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "kernels/processor/instructions.h"

namespace joinsum::kernels::pairs {

using semiring::Join;
using semiring::Reduction;
using semiring::Tiles;
using semiring::Type;

namespace {

/// Combined pairs below which a thread more costs more than it brings.
constexpr int64_t kSerial = 1 << 16;

}  // namespace

Tiles tiles_for(Join join, Reduction reduction, Type type) {
  return processor::widest([&] { return semiring::avx512_tiles(join, reduction, type); },
                           [&] { return semiring::avx2_tiles(join, reduction, type); },
                           [&] { return semiring::portable_tiles(join, reduction, type); },
                           [](const Tiles& tiles) { return tiles.any != nullptr; });
}

bool may_give_nan(Join join, const Contents& left, const Contents& right) {
  if (left.nan || right.nan) return true;
  switch (join) {
    case Join::kAdd:
      return (left.positive && right.negative) || (left.negative && right.positive);
    case Join::kMul:  // an infinity by zero
      return left.positive || left.negative || right.positive || right.negative;
    case Join::kDiv:
    case Join::kReversedDiv:  // zero by zero
      return true;
    case Join::kMax:
    case Join::kMin:
      return false;
    default:
      return (left.positive && right.positive) || (left.negative && right.negative);
  }
}

bool adjacent(const int64_t* offsets, int64_t count) {
  for (int64_t i = 1; i < count; ++i) {
    if (offsets[i] != offsets[i - 1] + 1) return false;
  }
  return true;
}

Cut cut_of(const PairProblem& problem) {
  const int64_t batch = problem.batch.count(), rows = problem.rows.count(), columns = problem.columns.count();
  const int64_t threads = at::get_num_threads();
  const double work = static_cast<double>(batch) * static_cast<double>(rows) * static_cast<double>(columns) *
                      static_cast<double>(problem.inner.count());
  const bool serial = work < static_cast<double>(kSerial) || batch >= 4 * threads;
  return {rows >= columns, serial ? 1 : threads, batch * (serial ? 1 : threads)};
}

Part part_of(const PairProblem& problem, const Cut& cut, int64_t index) {
  const int64_t rows = problem.rows.count(), columns = problem.columns.count();
  const int64_t piece = index % cut.each, extent = cut.rows ? rows : columns;
  const int64_t begin = extent * piece / cut.each, count = extent * (piece + 1) / cut.each - begin;
  return cut.rows ? Part{index / cut.each, begin, count, 0, columns} : Part{index / cut.each, 0, rows, begin, count};
}

}  // namespace joinsum::kernels::pairs

#pragma once

#include "kernels/semiring/pair_plane_loops.h"

/// The tiles of each type of element, from the loops that fit it.
namespace joinsum::kernels::semiring {
namespace {

/// Tiles for elements of at least 32 bits.
template <int kRows, int bytes>
Tiles wide_tiles(Join join, Reduction reduction, Type type) {
  if (reduction == Reduction::kLogAddExp) {
    if (type == Type::kFloat) return log_tiles<float, kRows, bytes>(join);
    return type == Type::kDouble ? log_tiles<double, kRows, bytes>(join) : Tiles{};
  }
  switch (type) {
    case Type::kComplexFloat:
      return complex_tiles<float, kRows / 2, bytes>(join, reduction);
    case Type::kComplexDouble:
      return complex_tiles<double, kRows / 2, bytes>(join, reduction);
    case Type::kFloat:
      return tiles_of<float, kRows, bytes>(join, reduction);
    case Type::kDouble:
      return tiles_of<double, kRows, bytes>(join, reduction);
    case Type::kInt64:
      return tiles_of<int64_t, kRows, bytes>(join, reduction);
    case Type::kInt32:
      return tiles_of<int32_t, kRows, bytes>(join, reduction);
    default:
      return {};
  }
}

}  // namespace
}  // namespace joinsum::kernels::semiring

#pragma once

#include "kernels/semiring/pair_operations.h"

namespace joinsum::kernels::semiring {

/// Reduces into a tile of the result, whose row r begins at rows[r], what packed panels combine to: index k of the left
/// panel holds an element for each row, and that of the right panel one for each column, each panel in one piece.
///
/// Tiles of two planes are reduced into a copy of it, whose elements are two numbers each: row r of the first ones
/// begins at rows[r], of the second ones at rows[height + r]. Of complex numbers they are the real and the imaginary
/// parts, as in index k of the panels, where all real ones come first. Of kLogAddExp they are a maximum m and a sum s,
/// which stand for m + log(s), or for m where that is not finite.
using Tile = void (*)(int64_t inner, const void* left, const void* right, void* const* rows);

/// The loops of a pair of operations. A tile stays in registers while the panels pass by.
struct Tiles {
  int64_t rows = 0;     ///< of `any` and `ordered`
  int64_t columns = 0;  ///< of all
  Tile any = nullptr;
  Tile ordered = nullptr;  ///< where no combined value is NaN (what the result holds may be); else `any`
  Tile row = nullptr;      ///< one row, as `any`
  Tile ordered_row = nullptr;
  int64_t planes = 1;
};

/// Tiles for the processor's own vectors; those of a set of instructions run only where it exists. Null functions for
/// types that they do not take; `portable_tiles` takes all, integers of less than 32 bits only it.
Tiles portable_tiles(Join join, Reduction reduction, Type type);
Tiles avx2_tiles(Join join, Reduction reduction, Type type);
Tiles avx512_tiles(Join join, Reduction reduction, Type type);

}  // namespace joinsum::kernels::semiring

#pragma once

#include "kernels/semiring/pair_operations.h"

namespace joinsum::kernels::semiring {

/// What is added up (of kPosition: what is looked for) over k for an element of the result, out[r, c]. `x` is the join
/// of two elements; `slope` is the derivative of the join with respect to the first one, without constant factors.
enum class Term {
  kPosition,  ///< the first k where x = own[r, c], or x is not a number; x = left[r, k] ⊗ right[k, c]
  kCount,     ///< 1 where x = own[r, c], else 0; x = left[r, k] ⊗ right[k, c]
  kTied,      ///< weight[r, k] slope where x = left[r, k], else 0 of it; x = own[r, c] ⊗ right[k, c]
  kShare,     ///< weight[r, k] exp(x - left[r, k]) slope; x = own[r, c] ⊗ right[k, c]
  kSlope      ///< weight[r, k] slope
};

/// What a tile reads and writes. Index k of `left` and `weight` holds an element for each row, that of `right` one for
/// each column; `own` and `out` have row after row.
struct TermPanels {
  int64_t depth;
  const void* left;
  const void* weight;
  const void* right;
  const void* own;
  void* out;  ///< terms are added to it; of kPosition it gets k or -1, integers as wide as the elements
};
using TermTile = void (*)(const TermPanels& panels);

struct TermTiles {
  int64_t rows = 0;
  int64_t columns = 0;
  TermTile any = nullptr;
  TermTile tame = nullptr;  ///< where no operand but `left` of kTied, kShare and kSlope exceeds `kTame`
};

/// Numbers up to it give no infinity and no NaN when they are joined, or multiplied by each other.
template <class T>
constexpr T kTame = std::numeric_limits<T>::max();
template <>
inline constexpr float kTame<float> = 0x1p40F;
template <>
inline constexpr double kTame<double> = 0x1p300;

/// Tiles as those of pair_tiles.h: null functions for terms, joins and types that they do not take. Slopes are there
/// for floats and all joins but quotients.
TermTiles portable_term_tiles(Term term, Join join, Type type);
TermTiles avx2_term_tiles(Term term, Join join, Type type);
TermTiles avx512_term_tiles(Term term, Join join, Type type);

/// Indices of k that a chunk has.
constexpr int64_t kChunk = 32;
/// Is added to a chunk's number where a later one has the same extreme.
constexpr int32_t kSeveral = 1 << 30;

/// What a tile of extremes reads and writes: panels as those of terms, and row after row of the tile.
struct ExtremePanels {
  int64_t depth;
  int32_t first;  ///< number of the panels' first chunk
  const void* left;
  const void* right;
  void* extreme;  ///< of the panels so far; the chunks are reduced into it
  void* chunk;    ///< the first one that has the extreme; integers as wide as the elements
};
using ExtremeTile = void (*)(const ExtremePanels& panels);

/// A bit for each k below `count`, at most kChunk, where left[k] ⊗ right[k] equals `*wanted`.
using Search = uint32_t (*)(int64_t count, const void* left, const void* right, const void* wanted);

/// Loops for joined elements none of which is NaN.
struct ExtremeTiles {
  int64_t rows = 0;
  int64_t columns = 0;
  ExtremeTile tile = nullptr;
  Search search = nullptr;
};

/// For maxima, or with `least` for minima; of quotients there are none.
ExtremeTiles portable_extreme_tiles(bool least, Join join, Type type);
ExtremeTiles avx2_extreme_tiles(bool least, Join join, Type type);
ExtremeTiles avx512_extreme_tiles(bool least, Join join, Type type);

}  // namespace joinsum::kernels::semiring

#include "kernels/semiring/term_tile_loops.h"

namespace joinsum::kernels::semiring {

/// Vectors of 16 bytes: every processor's that has any.
TermTiles portable_term_tiles(Term term, Join join, Type type) { return all_term_tiles<2, 16>(term, join, type); }
ExtremeTiles portable_extreme_tiles(bool least, Join join, Type type) {
  return all_extreme_tiles<2, 16>(least, join, type);
}

}  // namespace joinsum::kernels::semiring

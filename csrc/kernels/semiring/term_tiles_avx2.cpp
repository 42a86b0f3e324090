// CMake compiles this source for AVX2 and FMA where the processor is an x86.
#if defined(__AVX2__)
#include "kernels/semiring/term_tile_loops.h"
#else
#include "kernels/semiring/term_tiles.h"
#endif

namespace joinsum::kernels::semiring {

#if defined(__AVX2__)
TermTiles avx2_term_tiles(Term term, Join join, Type type) { return all_term_tiles<2, 32>(term, join, type); }
ExtremeTiles avx2_extreme_tiles(bool least, Join join, Type type) {
  return all_extreme_tiles<4, 32>(least, join, type);
}
#else
TermTiles avx2_term_tiles(Term, Join, Type) { return {}; }
ExtremeTiles avx2_extreme_tiles(bool, Join, Type) { return {}; }
#endif

}  // namespace joinsum::kernels::semiring

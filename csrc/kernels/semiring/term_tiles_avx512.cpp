// CMake compiles this source for AVX-512 (F, BW, DQ, VL) and FMA where the processor is an x86.
#if defined(__AVX512F__)
#include "kernels/semiring/term_tile_loops.h"
#else
#include "kernels/semiring/term_tiles.h"
#endif

namespace joinsum::kernels::semiring {

#if defined(__AVX512F__)
TermTiles avx512_term_tiles(Term term, Join join, Type type) { return all_term_tiles<6, 64>(term, join, type); }
ExtremeTiles avx512_extreme_tiles(bool least, Join join, Type type) {
  return all_extreme_tiles<8, 64>(least, join, type);
}
#else
TermTiles avx512_term_tiles(Term, Join, Type) { return {}; }
ExtremeTiles avx512_extreme_tiles(bool, Join, Type) { return {}; }
#endif

}  // namespace joinsum::kernels::semiring

// CMake compiles this source for AVX2 and FMA where the processor is an x86.
#if defined(__AVX2__)
#include "kernels/semiring/term_tile_loops.h"
#else
#include "kernels/semiring/term_tiles.h"
#endif

namespace joinsum::kernels::semiring {

#if defined(__AVX2__)
TermTiles avx2_term_tiles(Term term, Join join, Type type) { return all_term_tiles<2, 32>(term, join, type); }
#else
TermTiles avx2_term_tiles(Term, Join, Type) { return {}; }
#endif

}  // namespace joinsum::kernels::semiring

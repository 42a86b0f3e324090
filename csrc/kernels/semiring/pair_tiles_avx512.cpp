// CMake compiles this source for AVX-512 (F, BW, DQ, VL) and FMA where the processor is an x86.
#if defined(__AVX512F__)
#include "kernels/semiring/pair_all_tiles.h"
#else
#include "kernels/semiring/pair_tiles.h"
#endif

namespace joinsum::kernels::semiring {

#if defined(__AVX512F__)
Tiles avx512_tiles(Join join, Reduction reduction, Type type) { return wide_tiles<8, 64>(join, reduction, type); }
#else
Tiles avx512_tiles(Join, Reduction, Type) { return {}; }
#endif

}  // namespace joinsum::kernels::semiring

// CMake compiles this source for AVX2 and FMA where the processor is an x86.
#if defined(__AVX2__)
#include "kernels/semiring/pair_all_tiles.h"
#else
#include "kernels/semiring/pair_tiles.h"
#endif

namespace joinsum::kernels::semiring {

#if defined(__AVX2__)
Tiles avx2_tiles(Join join, Reduction reduction, Type type) { return wide_tiles<4, 32>(join, reduction, type); }
#else
Tiles avx2_tiles(Join, Reduction, Type) { return {}; }
#endif

}  // namespace joinsum::kernels::semiring

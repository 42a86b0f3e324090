// CMake compiles this source for AVX2 and FMA where the processor is an x86.
#if defined(__AVX2__)
#define CPU_CAPABILITY AVX2
#define CPU_CAPABILITY_AVX2
#include "kernels/fusion/loops.h"
#else
#include "kernels/fusion/functions.h"
#endif

namespace joinsum::kernels::fusion {

template <class T>
Loops<T> avx2_loops() {
#if defined(__AVX2__)
  return LoopsOf<T>::all();
#else
  return {};
#endif
}

template Loops<float> avx2_loops();
template Loops<double> avx2_loops();

}  // namespace joinsum::kernels::fusion

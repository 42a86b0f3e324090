// CMake compiles this source for AVX-512 where the processor is an x86.
#if defined(__AVX512F__)
#define CPU_CAPABILITY AVX512
#define CPU_CAPABILITY_AVX512
#include "kernels/fusion/loops.h"
#else
#include "kernels/fusion/functions.h"
#endif

namespace joinsum::kernels::fusion {

template <class T>
Loops<T> avx512_loops() {
#if defined(__AVX512F__)
  return LoopsOf<T>::all();
#else
  return {};
#endif
}

template Loops<float> avx512_loops();
template Loops<double> avx512_loops();

}  // namespace joinsum::kernels::fusion

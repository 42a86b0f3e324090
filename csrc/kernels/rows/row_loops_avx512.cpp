// CMake compiles this source for AVX-512 (F, BW, DQ, VL) and FMA where the processor is an x86.
#if defined(__AVX512F__)
#include "kernels/rows/row_loops.h"
#else
#include "kernels/rows/rows.h"
#endif

namespace joinsum::kernels::rows {

template <class T>
RowLoops<T> avx512_row_loops() {
#if defined(__AVX512F__)
  return row_loops<T, 64>();
#else
  return {};
#endif
}

template RowLoops<float> avx512_row_loops();
template RowLoops<double> avx512_row_loops();

}  // namespace joinsum::kernels::rows

// CMake compiles this source for AVX2 and FMA where the processor is an x86.
#if defined(__AVX2__)
#include "kernels/rows/row_loops.h"
#else
#include "kernels/rows/rows.h"
#endif

namespace joinsum::kernels::rows {

template <class T>
RowLoops<T> avx2_row_loops() {
#if defined(__AVX2__)
  return row_loops<T, 32>();
#else
  return {};
#endif
}

template RowLoops<float> avx2_row_loops();
template RowLoops<double> avx2_row_loops();

}  // namespace joinsum::kernels::rows

// CMake compiles this source for AVX2 and FMA where the processor is an x86.
#if defined(__AVX2__)
#include "kernels/rows/entry_loops.h"
#else
#include "kernels/rows/entries.h"
#endif

namespace joinsum::kernels::rows {

template <class T, class Column>
EntryLoops<T, Column> avx2_entry_loops() {
#if defined(__AVX2__)
  return entry_loops<T, Column, 32>();
#else
  return {};
#endif
}

template EntryLoops<float, int32_t> avx2_entry_loops();
template EntryLoops<float, int64_t> avx2_entry_loops();
template EntryLoops<double, int32_t> avx2_entry_loops();
template EntryLoops<double, int64_t> avx2_entry_loops();

}  // namespace joinsum::kernels::rows

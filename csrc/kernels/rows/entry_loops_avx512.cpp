// CMake compiles this source for AVX-512 (F, BW, DQ, VL) and FMA where the processor is an x86.
#if defined(__AVX512F__)
#include "kernels/rows/entry_loops.h"
#else
#include "kernels/rows/entries.h"
#endif

namespace joinsum::kernels::rows {

template <class T, class Column>
EntryLoops<T, Column> avx512_entry_loops() {
#if defined(__AVX512F__)
  return entry_loops<T, Column, 64>();
#else
  return {};
#endif
}

template EntryLoops<float, int32_t> avx512_entry_loops();
template EntryLoops<float, int64_t> avx512_entry_loops();
template EntryLoops<double, int32_t> avx512_entry_loops();
template EntryLoops<double, int64_t> avx512_entry_loops();

}  // namespace joinsum::kernels::rows

#include "kernels/rows/entry_loops.h"

namespace joinsum::kernels::rows {

template <class T, class Column>
EntryLoops<T, Column> portable_entry_loops() {
  return entry_loops<T, Column, 16>();
}

template EntryLoops<float, int32_t> portable_entry_loops();
template EntryLoops<float, int64_t> portable_entry_loops();
template EntryLoops<double, int32_t> portable_entry_loops();
template EntryLoops<double, int64_t> portable_entry_loops();

}  // namespace joinsum::kernels::rows

#include "kernels/rows/row_loops.h"

namespace joinsum::kernels::rows {

template <class T>
RowLoops<T> portable_row_loops() {
  return row_loops<T, 16>();
}

template RowLoops<float> portable_row_loops();
template RowLoops<double> portable_row_loops();

}  // namespace joinsum::kernels::rows

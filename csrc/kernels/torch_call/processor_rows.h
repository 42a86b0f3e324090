#pragma once

#include <algorithm>

#include <ATen/ATen.h>

#include "kernels/processor/instructions.h"
#include "kernels/rows/rows.h"

namespace joinsum::kernels::torch_call {

/// The loops for this processor.
template <class T>
const rows::RowLoops<T>& row_loops() {
  static const rows::RowLoops<T> chosen =
      processor::widest(rows::avx512_row_loops<T>, rows::avx2_row_loops<T>, rows::portable_row_loops<T>,
                        [](const rows::RowLoops<T>& loops) { return loops.sum != nullptr; });
  return chosen;
}

/// Rows of so many elements that are worth a thread.
inline int64_t rows_per_thread(int64_t elements) {
  constexpr int64_t kElements = 16'384;
  return std::max<int64_t>(1, kElements / std::max<int64_t>(1, elements));
}

}  // namespace joinsum::kernels::torch_call

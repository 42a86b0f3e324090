#pragma once

#include <algorithm>
#include <string>

#include <ATen/ATen.h>
#include <ATen/Version.h>

#include "kernels/rows/rows.h"

namespace joinsum::kernels::torch_call {

/// The loops for this processor.
template <class T>
const rows::RowLoops<T>& row_loops() {
  static const rows::RowLoops<T> chosen = [] {
    const std::string capability = at::get_cpu_capability();
    rows::RowLoops<T> loops;
    if (capability == "AVX512") loops = rows::avx512_row_loops<T>();
    if (loops.sum == nullptr && capability.starts_with("AVX")) loops = rows::avx2_row_loops<T>();
    return loops.sum == nullptr ? rows::portable_row_loops<T>() : loops;
  }();
  return chosen;
}

/// Rows of so many elements that are worth a thread.
inline int64_t rows_per_thread(int64_t elements) {
  constexpr int64_t kElements = 16'384;
  return std::max<int64_t>(1, kElements / std::max<int64_t>(1, elements));
}

}  // namespace joinsum::kernels::torch_call

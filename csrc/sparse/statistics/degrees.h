#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "sparse/statistics/statistics.h"

namespace joinsum::sparse::statistics {

/// Distinct coordinates along an axis, and the most elements that share one.
struct AxisDegrees {
  double distinct = 0;
  double most = 0;

  /// Adds a coordinate of so many elements, which may be none.
  void add(int64_t elements) {
    distinct += elements > 0 ? 1 : 0;
    most = std::max(most, static_cast<double>(elements));
  }
};

/// Of each axis of a tensor's stored elements, counted once while the tensor is alive.
std::vector<AxisDegrees> degrees_of(const std::shared_ptr<const Tensor>& tensor);

}  // namespace joinsum::sparse::statistics

#pragma once

#include <vector>

#include "sparse/tensor/tensor.h"

namespace joinsum::sparse::tensor {

/// Whether a tensor is a matrix whose last level lists coordinates, and these levels are a dense one and a list in the
/// other order: from CSR to CSC.
bool transposes(const Tensor& tensor, const std::vector<int64_t>& axes, const std::vector<LevelFormat>& formats);

/// Its form in the other order, as levels dense and sorted list; by counting, linear in entries and extents.
Tensor transposed_levels(const Tensor& matrix, int64_t largest);

}  // namespace joinsum::sparse::tensor

#pragma once

#include <vector>

#include "sparse/tensor/tensor.h"

namespace joinsum::sparse::tensor {

/// The stored elements whose coordinates are equal along the axes of each group, with one axis for each group.
Coordinates on_diagonals(const Coordinates& elements, const std::vector<std::vector<int64_t>>& groups);

}  // namespace joinsum::sparse::tensor

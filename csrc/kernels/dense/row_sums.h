#pragma once

#include <optional>
#include <vector>

#include <ATen/ATen.h>

#include "base/dims.h"

namespace joinsum::kernels::dense {

/// `x` summed over `axes` in one pass over its rows, if they are contiguous and retained: for floats in main memory of
/// whose axes several are summed that cannot be viewed as one. Such sums torch computes element by element.
std::optional<at::Tensor> sum_of_rows(const at::Tensor& x, const Dims& axes);

/// Writes the sum of arrays of one shape to `into`, which may be one of them; added in order, in one pass. False where
/// they are not contiguous floats of one dtype in main memory: then nothing is written.
bool sum_in_order(const std::vector<at::Tensor>& arrays, const at::Tensor& into);

}  // namespace joinsum::kernels::dense

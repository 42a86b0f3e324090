#pragma once

#include <optional>

#include <ATen/ATen.h>

#include "base/dims.h"

namespace joinsum::kernels::dense {

/// `x` summed over `axes` in one pass over its rows, if they are contiguous and retained: for floats in main memory of
/// whose axes several are summed that cannot be viewed as one. Such sums torch computes element by element.
std::optional<at::Tensor> sum_of_rows(const at::Tensor& x, const Dims& axes);

}  // namespace joinsum::kernels::dense

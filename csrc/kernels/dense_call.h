#pragma once

#include <ATen/ATen.h>

#include "kernels/call.h"

namespace joinsum::kernels {

/// The results of `call` on one part of its work: blocks whose axes are the operands' letters, and where the part
/// begins along each letter. Arrays of the results' letters, contiguous; those that the operator gives undefined, and
/// what is no tensor, are not counted. Raises KernelError naming the operator where torch has none of that name, an
/// argument does not fit its schema, the operator fails, or a result is of another shape or dtype than the call says.
std::vector<at::Tensor> dense_call(const Call& call, const std::vector<at::Tensor>& operands,
                                   const std::map<char, int64_t>& begins);

}  // namespace joinsum::kernels

#pragma once

#include "kernels/dense.h"

namespace joinsum::kernels::dense_parts {

/// What the sources of `dense` share.

/// `contract` without counting the call.
at::Tensor contract(const Labels& labels, const at::Tensor& left, const at::Tensor& right, at::Tensor out = {},
                    bool accumulate = false);

/// Writes a built-in elementwise kernel to `out`, which has the shape that the operands broadcast to and the result's
/// dtype, and may be one of them.
void elementwise(const Kernel& kernel, const std::vector<at::Tensor>& operands, const Scalars& scalars,
                 at::Tensor& out);

Dims shape_of(const at::Tensor& tensor);

}  // namespace joinsum::kernels::dense_parts

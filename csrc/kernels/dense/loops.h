#pragma once

#include "kernels/dense/dense.h"

namespace joinsum::kernels::dense {

/// What the sources of `dense` share.

/// `contract` of products and sums, without counting the call.
at::Tensor multiply(const table::Subscripts& labels, const at::Tensor& left, const at::Tensor& right,
                    at::Tensor out = {}, bool accumulate = false);

/// The same where one operand is a coalesced tensor of torch's layout `sparse_coo` without dense axes.
at::Tensor multiply_sparse(const table::Subscripts& labels, const at::Tensor& left, const at::Tensor& right,
                           at::Tensor out, bool accumulate);

/// A built-in labelled kernel of one operand, behind `batch` leading axes.
at::Tensor reduce(const table::Row& row, const table::Subscripts& labels, const at::Tensor& operand, int64_t batch);

/// A built-in labelled kernel of two operands; `out` and `accumulate` as in `contract`. The joined array is never
/// formed whole; floats of half width accumulate in single precision.
at::Tensor contract_pair(const table::Kernel& kernel, const table::Subscripts& labels, const at::Tensor& left,
                         const at::Tensor& right, at::Tensor out = {}, bool accumulate = false);

/// Writes a built-in elementwise kernel to `out`, which has the shape that the operands broadcast to and the result's
/// dtype, and may be one of them.
void elementwise(const table::Kernel& kernel, const std::vector<at::Tensor>& operands, const table::Scalars& scalars,
                 at::Tensor& out);

/// The same for an expression.
void expression(const table::Kernel& kernel, const std::vector<at::Tensor>& operands, at::Tensor& out);

/// Elements of an array that are worked on at once in several passes: they stay in the caches of a core; a GPU wants
/// more.
int64_t block_elements(const at::Tensor& tensor);

Dims shape_of(const at::Tensor& tensor);

}  // namespace joinsum::kernels::dense

#pragma once

#include "kernels/dense.h"

namespace joinsum::kernels::dense_parts {

/// What the sources of `dense` share.

/// `contract` without counting the call.
at::Tensor contract(const Labels& labels, const at::Tensor& left, const at::Tensor& right, at::Tensor out = {},
                    bool accumulate = false);

/// Folds `axes` away by the kernel that a row's `fold` names; a fold of nothing gives its identity.
at::Tensor fold_axes(const std::string& fold, const at::Tensor& x, const Dims& axes);

/// A built-in labelled kernel of one operand, behind `batch` leading axes.
at::Tensor reduce(const Row& row, const Labels& labels, const at::Tensor& operand, int64_t batch);

/// A built-in labelled kernel of two operands; `out` and `accumulate` as in `contract`. The joined array is never
/// formed whole; floats of half width fold in single precision.
at::Tensor contract_pair(const Kernel& kernel, const Labels& labels, const at::Tensor& left, const at::Tensor& right,
                         at::Tensor out = {}, bool accumulate = false);

/// Writes a built-in elementwise kernel to `out`, which has the shape that the operands broadcast to and the result's
/// dtype, and may be one of them.
void elementwise(const Kernel& kernel, const std::vector<at::Tensor>& operands, const Scalars& scalars,
                 at::Tensor& out);

/// Calls `work(begin, end)` for ranges of the numbers below `pieces`, on torch's threads.
void for_each_range(int64_t pieces, const std::function<void(int64_t, int64_t)>& work);

/// The same for an expression.
void expression(const Kernel& kernel, const std::vector<at::Tensor>& operands, at::Tensor& out);

/// Elements of an array that are worked on at once in several passes: they stay in the caches of a core; a GPU wants
/// more.
int64_t block_elements(const at::Tensor& tensor);

Dims shape_of(const at::Tensor& tensor);

}  // namespace joinsum::kernels::dense_parts

#pragma once

#include <functional>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "kernels/table/table.h"

namespace joinsum::kernels::dense {

/// torch's name of a dtype, and back; PlanError for a dtype that joinsum has not.
at::ScalarType scalar_type(DType dtype);
DType dtype_of(at::ScalarType type);

/// The memory of a contiguous array as a list of bytes. `view(at::kByte)` refuses some contiguous arrays: it looks at
/// the strides of axes of one element, which mean nothing.
at::Tensor bytes_of(const at::Tensor& array);

/// Runs `kernel` on tensors of one device; no gradient is recorded.
///
/// Each operand may carry `batch` leading axes, equal in number, of extents that are equal or 1 (broadcast); the kernel
/// acts on the axes after them. `output` is the number of the result of a kernel with several. The result of a kernel
/// that only moves elements may be a view of its operand, and a result need not be contiguous.
///
/// `out`, when defined, receives the result of an elementwise kernel: it has the result's shape and dtype and may be
/// one of the operands (it must not overlap one in another way).
///
/// Raises KernelError for shapes, dtypes or devices that do not fit and PlanError for an unbound scalar.
at::Tensor run(const table::Kernel& kernel, const std::vector<at::Tensor>& operands, const table::Scalars& scalars = {},
               int64_t batch = 0, int64_t output = 0, at::Tensor out = {});

/// Contracts two operands on the vendor's GEMM: the einsum `labels`, with no letter twice in one operand. Strides are
/// followed and copies made only where several letters have to be one axis and do not lie as one. `out`, when defined,
/// has the result's shape and dtype and receives the result, or is increased by it with `accumulate`.
///
///     contract(Labels::parse("bij,jk->bik"), x, w)
at::Tensor contract(const table::Subscripts& labels, const at::Tensor& left, const at::Tensor& right,
                    at::Tensor out = {}, bool accumulate = false);

/// The contraction by the pair (⊗, ⊕) of `kernel`'s row, with letters of the caller's in place of its own. With
/// `accumulate` it is reduced into `out` by ⊕.
at::Tensor contract(const table::Kernel& kernel, const table::Subscripts& labels, const at::Tensor& left,
                    const at::Tensor& right, at::Tensor out = {}, bool accumulate = false);

/// Reduces axes by a kernel for which `reduces_axes` holds: in one pass, and in order.
at::Tensor reduce_axes(const std::string& reduction, const at::Tensor& x, const Dims& axes);
bool reduces_axes(const table::Kernel& kernel);

/// Calls of `dense` and `contract` by this process, for tests.
int64_t kernel_calls();
void reset_kernel_calls();

/// What a user's kernel computes, on operands without batch axes (of an elementwise one: of equal rank, to be
/// broadcast).
using DenseFunction =
    std::function<at::Tensor(const table::Kernel&, const std::vector<at::Tensor>&, const table::Scalars&)>;

/// Sets the function of the user's kernel `name` (see register_row); an empty one takes it back.
void register_function(const std::string& name, DenseFunction function);

}  // namespace joinsum::kernels::dense

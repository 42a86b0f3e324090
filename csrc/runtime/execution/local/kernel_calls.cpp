#include "runtime/execution/local/kernel_calls.h"

#include <algorithm>

#include <ATen/ExpandUtils.h>

#include "kernels/dense/dense.h"
#include "kernels/sparse/pair.h"
#include "kernels/table/sparsity.h"
#include "runtime/storage/sparse_array.h"

namespace joinsum::runtime::execution::local {

using kernels::table::Kernel;

namespace {

/// Whether `kernel` is a built-in elementwise one of its operands' dtype, whose result can be computed into an array.
bool computes_elements(const Kernel& kernel) {
  const kernels::table::Row& row = kernels::table::row_of(kernel);
  return row.form == kernels::table::Form::kElementwise && !row.user && !row.dtype && !row.facts.moves_elements;
}

}  // namespace

KernelCall::KernelCall(const Kernel& kernel, int64_t batch)
    : kernel_(kernel),
      batch_(batch),
      elementwise_(kernels::table::row_of(kernel).form == kernels::table::Form::kElementwise),
      allocates_(computes_elements(kernel)) {}

at::Tensor KernelCall::run(const std::vector<at::Tensor>& operands, const RunContext& context, int64_t output,
                           const at::Tensor& out) const {
  if (operands.size() == 1 && operands[0].is_sparse()) return of_entries(operands[0], context);
  if (operands.size() == 2 && kernels::table::gives_sparse(kernel_, operands[0].is_sparse(), operands[1].is_sparse())) {
    return of_sparse_pair(operands, context);
  }
  int64_t calls = 1;
  for (int64_t i = 0; i < batch_; ++i) {
    int64_t size = 1;
    for (const at::Tensor& operand : operands) size = std::max(size, operand.size(i));
    calls *= size;
  }
  std::vector<Dims> shapes;
  for (const at::Tensor& operand : operands) shapes.push_back(operand.sizes().slice(batch_).vec());
  context.flops += static_cast<int64_t>(storage::stored_share(operands) *
                                        static_cast<double>(calls * kernels::table::flops(kernel_, shapes)));
  if (out.defined() || !allocates_) return kernels::dense::run(kernel_, operands, context.scalars, batch_, output, out);
  Dims shape = operands[0].sizes().vec();
  if (operands.size() > 1) shape = at::infer_size(operands[0].sizes(), operands[1].sizes());
  return kernels::dense::run(kernel_, operands, context.scalars, batch_, output,
                             context.store.allocate(shape, operands[0].options()));
}

/// An elementwise kernel that is zero at zero.
at::Tensor KernelCall::of_entries(const at::Tensor& sparse, const RunContext& context) const {
  const at::Tensor values = sparse._values();
  context.flops += kernels::table::flops(kernel_, {values.sizes().vec()});
  return storage::with_values(sparse, kernels::dense::run(kernel_, {values}, context.scalars));
}

at::Tensor KernelCall::of_sparse_pair(const std::vector<at::Tensor>& operands, const RunContext& context) const {
  std::vector<Dims> shapes;
  for (const at::Tensor& operand : operands) shapes.push_back(operand.sizes().slice(batch_).vec());
  const at::Tensor result = kernels::sparse::of_pair(kernel_, operands[0], operands[1], batch_);
  if (result._nnz() > 0) {
    context.flops += static_cast<int64_t>(storage::stored_share(operands) *
                                          static_cast<double>(kernels::table::flops(kernel_, shapes)));
  }
  return result;
}

bool KernelCall::fits_result(const at::Tensor& array, const std::vector<at::Tensor>& operands) const {
  if (!allocates_ || array.is_sparse()) return false;
  for (int64_t a = 0; a < array.dim(); ++a) {
    if (array.size(a) > 1 && array.stride(a) == 0) return false;
  }
  return std::all_of(operands.begin(), operands.end(), [&](const at::Tensor& operand) {
    for (int64_t a = 0; a < array.dim(); ++a) {
      if (operand.size(a) != array.size(a) && operand.size(a) != 1) return false;
    }
    return operand.scalar_type() == array.scalar_type();
  });
}

}  // namespace joinsum::runtime::execution::local

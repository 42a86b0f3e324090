// mm, bmm, addmm and baddbmm by the faster of torch's libraries, for captured graphs on one site; and products of
// groups of rows or columns.

#include <ATen/ATen.h>
#include <torch/library.h>

#include "kernels/products/products.h"

namespace joinsum::kernels::torch_call {
namespace {

at::Tensor& add_matrix_product_(at::Tensor& input, const at::Tensor& left, const at::Tensor& right,
                                const at::Scalar& beta, const at::Scalar& alpha) {
  products::matrix_product_into(input, left, right, beta, alpha);
  input.unsafeGetTensorImpl()->bump_version();  // as autograd does for torch's own operators
  return input;
}

at::Tensor add_matrix_product(const at::Tensor& input, const at::Tensor& left, const at::Tensor& right,
                              const at::Scalar& beta, const at::Scalar& alpha) {
  std::vector<int64_t> extents = left.sizes().vec();
  extents.back() = right.size(-1);
  at::Tensor out = at::empty(extents, input.options());
  if (!beta.equal(0)) out.copy_(input.expand(extents));
  return add_matrix_product_(out, left, right, beta, alpha);
}

/// A product of matrices for each group g, from `ends[g - 1]` to `ends[g]` along the axis t; zeros after the last.
/// [t, k] and [g, k, n] give [t, n], [g, m, k] and [k, t] give [m, t], [m, t] and [t, n] give [g, m, n]. ATen's
/// `_grouped_mm` takes only strides of 16 bytes, which shards of a tensor need not have.
at::Tensor grouped_product(const at::Tensor& left, const at::Tensor& right, const at::Tensor& ends) {
  const at::Tensor bounds = ends.to(at::kCPU, at::kLong).contiguous();
  const int64_t groups = bounds.numel();
  at::Tensor out = left.dim() == right.dim() ? at::empty({groups, left.size(0), right.size(1)}, left.options())
                   : left.dim() == 2         ? at::zeros({left.size(0), right.size(2)}, left.options())
                                             : at::zeros({left.size(1), right.size(1)}, left.options());
  int64_t begin = 0;
  for (int64_t group = 0; group < groups; ++group) {
    const int64_t count = bounds.const_data_ptr<int64_t>()[group] - begin;
    const auto part = [=](const at::Tensor& x, int64_t axis) { return x.narrow(axis, begin, count); };
    if (left.dim() == right.dim()) {
      out[group].copy_(at::mm(part(left, 1), part(right, 0)));
    } else if (left.dim() == 2) {
      part(out, 0).copy_(at::mm(part(left, 0), right[group]));
    } else {
      part(out, 1).copy_(at::mm(left[group], part(right, 1)));
    }
    begin += count;
  }
  return out;
}

TORCH_LIBRARY_FRAGMENT(joinsum, library) {
  library.def("grouped_product(Tensor left, Tensor right, Tensor ends) -> Tensor");
  library.def("matrix_product(Tensor left, Tensor right) -> Tensor");
  library.def(
      "add_matrix_product(Tensor input, Tensor left, Tensor right, *, Scalar beta=1, Scalar alpha=1) -> Tensor");
  library.def(
      "add_matrix_product_(Tensor(a!) input, Tensor left, Tensor right, *, Scalar beta=1, Scalar alpha=1) "
      "-> Tensor(a!)");
}

TORCH_LIBRARY_IMPL(joinsum, CompositeExplicitAutograd, library) {
  library.impl("grouped_product", &grouped_product);
  library.impl("matrix_product", &products::matrix_product);
  library.impl("add_matrix_product", &add_matrix_product);
  library.impl("add_matrix_product_", &add_matrix_product_);
}

}  // namespace
}  // namespace joinsum::kernels::torch_call

// mm, bmm, addmm and baddbmm by the faster of torch's libraries, for captured graphs on one site.

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

TORCH_LIBRARY_FRAGMENT(joinsum, library) {
  library.def("matrix_product(Tensor left, Tensor right) -> Tensor");
  library.def(
      "add_matrix_product(Tensor input, Tensor left, Tensor right, *, Scalar beta=1, Scalar alpha=1) -> Tensor");
  library.def(
      "add_matrix_product_(Tensor(a!) input, Tensor left, Tensor right, *, Scalar beta=1, Scalar alpha=1) "
      "-> Tensor(a!)");
}

TORCH_LIBRARY_IMPL(joinsum, CompositeExplicitAutograd, library) {
  library.impl("matrix_product", &products::matrix_product);
  library.impl("add_matrix_product", &add_matrix_product);
  library.impl("add_matrix_product_", &add_matrix_product_);
}

}  // namespace
}  // namespace joinsum::kernels::torch_call

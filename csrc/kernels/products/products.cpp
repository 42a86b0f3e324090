#include "kernels/products/products.h"

#include <algorithm>
#include <vector>

#include <ATen/Context.h>
#include <ATen/Version.h>

#include "kernels/products/openblas.h"

// Declared in ATen/native/mkldnn/Matmul.h, which torch does not install.
namespace at::native {
TORCH_API void mkldnn_matmul(const Tensor& mat1, const Tensor& mat2, const Tensor& result, float beta, float alpha);
}

namespace joinsum::kernels::products {
namespace {

/// Whether a matrix, the last two axes of `tensor`, has its rows or its columns in one stretch each, and no two of its
/// elements in one place; batches have places of their own, too.
bool is_plain(const at::Tensor& tensor) {
  const int64_t rows = tensor.size(-2);
  const int64_t columns = tensor.size(-1);
  const int64_t row_stride = tensor.stride(-2);
  const int64_t column_stride = tensor.stride(-1);
  const bool distinct = (column_stride == 1 && row_stride >= columns) || (row_stride == 1 && column_stride >= rows);
  return distinct && (tensor.dim() == 2 || tensor.size(0) == 1 || tensor.stride(0) > 0);
}

bool is_plain_array(const at::Tensor& tensor) {
  return tensor.is_cpu() && tensor.layout() == at::kStrided && (tensor.dim() == 2 || tensor.dim() == 3) &&
         !tensor.is_conj() && !tensor.is_neg() && is_plain(tensor);
}

bool is_plain_float(const at::Tensor& tensor) { return tensor.scalar_type() == at::kFloat && is_plain_array(tensor); }

/// Whether the product is large enough for oneDNN, which takes some 10 us to begin, and wide enough.
bool is_large(const at::Tensor& left, const at::Tensor& right) {
  constexpr double kMultiplications = 2e6;
  constexpr int64_t kExtent = 4;
  const int64_t rows = left.size(-2);
  const int64_t inner = left.size(-1);
  const int64_t columns = right.size(-1);
  const double batches = left.dim() == 3 ? static_cast<double>(left.size(0)) : 1.0;
  return std::min({rows, inner, columns}) >= kExtent &&
         batches * static_cast<double>(rows) * static_cast<double>(inner) * static_cast<double>(columns) >=
             kMultiplications;
}

bool fit(const at::Tensor& left, const at::Tensor& right) {
  return left.dim() == right.dim() && left.size(-1) == right.size(-2) &&
         (left.dim() == 2 || left.size(0) == right.size(0));
}

bool by_onednn(const at::Tensor& left, const at::Tensor& right) {
  return onednn_is_faster() && is_plain_float(left) && is_plain_float(right) && fit(left, right) &&
         is_large(left, right);
}

bool by_openblas(const at::Tensor& left, const at::Tensor& right) {
  return openblas_is_faster() && left.scalar_type() == right.scalar_type() && is_plain_array(left) &&
         is_plain_array(right) && fit(left, right) && fits_openblas(left, right);
}

/// Whether torch has no product of these matrices: of integers on a GPU.
bool by_elements(const at::Tensor& left) {
  return left.is_cuda() && at::isIntegralType(left.scalar_type(), /*includeBool=*/true);
}

/// out = left @ right, of products of elements; some rows at a time, so that these take little memory.
void product_of_elements(const at::Tensor& out, const at::Tensor& left, const at::Tensor& right) {
  constexpr int64_t kElements = int64_t{1} << 26;
  const int64_t of_a_row = std::max<int64_t>(right.numel(), 1);
  const int64_t rows = std::max<int64_t>(kElements / of_a_row, 1);
  for (int64_t begin = 0; begin < left.size(-2); begin += rows) {
    const int64_t count = std::min(rows, left.size(-2) - begin);
    const at::Tensor products = left.narrow(-2, begin, count).unsqueeze(-1) * right.unsqueeze(-3);
    out.narrow(-2, begin, count).copy_(products.sum(-2, /*keepdim=*/false, out.scalar_type()));
  }
}

}  // namespace

bool onednn_is_faster() {
#if defined(__x86_64__)
  static const bool faster = [] {
    __builtin_cpu_init();
    return at::hasMKL() && at::hasMKLDNN() && at::get_cpu_capability() == "AVX512" && !__builtin_cpu_is("intel");
  }();
  return faster && at::globalContext().userEnabledMkldnn();
#else
  return false;
#endif
}

at::Tensor matrix_product(const at::Tensor& left, const at::Tensor& right) {
  const bool elements = by_elements(left);
  const bool openblas = !elements && by_openblas(left, right);
  if (!elements && !openblas && !by_onednn(left, right)) {
    return left.dim() == 2 ? at::mm(left, right) : at::bmm(left, right);
  }
  std::vector<int64_t> extents = left.sizes().vec();
  extents.back() = right.size(-1);
  at::Tensor out = at::empty(extents, left.options());
  if (elements) {
    product_of_elements(out, left, right);
  } else if (openblas) {
    openblas_product(out, left, right, 0, 1);
  } else {
    at::native::mkldnn_matmul(left, right, out, 0.0F, 1.0F);
  }
  return out;
}

void matrix_product_into(const at::Tensor& out, const at::Tensor& left, const at::Tensor& right, const at::Scalar& beta,
                         const at::Scalar& alpha) {
  // oneDNN would leave `out` as it is if alpha were 0.
  if (by_onednn(left, right) && is_plain_float(out) && alpha.to<float>() != 0) {
    at::native::mkldnn_matmul(left, right, out, beta.to<float>(), alpha.to<float>());
    return;
  }
  const auto fits_out = [&] {
    return is_plain_array(out) && out.scalar_type() == left.scalar_type() && out.dim() == left.dim() &&
           out.size(0) == left.size(0) && out.size(-2) == left.size(-2) && out.size(-1) == right.size(-1);
  };
  if (by_openblas(left, right) && fits_out()) {
    openblas_product(out, left, right, beta.to<double>(), alpha.to<double>());
    return;
  }
  if (by_elements(left)) {
    const at::Tensor product = matrix_product(left, right);
    if (beta.equal(0)) {
      out.copy_(product * alpha);
    } else {
      out.mul_(beta).add_(product, alpha);
    }
    return;
  }
  at::Tensor target = out;
  if (beta.equal(0) && alpha.equal(1)) {
    out.dim() == 2 ? at::mm_out(target, left, right) : at::bmm_out(target, left, right);
  } else {
    out.dim() == 2 ? target.addmm_(left, right, beta, alpha) : target.baddbmm_(left, right, beta, alpha);
  }
}

}  // namespace joinsum::kernels::products

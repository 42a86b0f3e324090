#pragma once

#include <ATen/ATen.h>

namespace joinsum::kernels::products {

/// Products of matrices, or of batches of matrices with one leading axis, by the fastest library. On Intel's processors
/// that is torch's MKL. On others with AVX-512 it is oneDNN for float32, as MKL computes half as wide there, which
/// `torch.backends.mkldnn.flags(enabled=False)` turns off; on others with AVX2 it is OpenBLAS.

/// Whether oneDNN's large products in single precision are faster than MKL's here, and may be used.
bool onednn_is_faster();

/// left @ right.
at::Tensor matrix_product(const at::Tensor& left, const at::Tensor& right);

/// out = beta · out + alpha · left @ right; with a beta of 0, `out` need hold no numbers. It overlaps no operand.
void matrix_product_into(const at::Tensor& out, const at::Tensor& left, const at::Tensor& right,
                         const at::Scalar& beta = 0, const at::Scalar& alpha = 1);

}  // namespace joinsum::kernels::products

#pragma once

#include <ATen/ATen.h>

namespace joinsum::kernels::products {

/// Products of matrices, or of batches of matrices with one leading axis, by the faster of torch's libraries: MKL, or
/// oneDNN for float32 on processors with AVX-512 that are not Intel's, where MKL computes half as wide.
/// `torch.backends.mkldnn.flags(enabled=False)` leaves MKL.

/// Whether oneDNN's large products in single precision are faster than MKL's here, and may be used.
bool onednn_is_faster();

/// left @ right.
at::Tensor matrix_product(const at::Tensor& left, const at::Tensor& right);

/// out = beta · out + alpha · left @ right; with a beta of 0, `out` need hold no numbers. It overlaps no operand.
void matrix_product_into(const at::Tensor& out, const at::Tensor& left, const at::Tensor& right,
                         const at::Scalar& beta = 0, const at::Scalar& alpha = 1);

}  // namespace joinsum::kernels::products

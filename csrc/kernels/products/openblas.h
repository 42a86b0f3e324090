#pragma once

#include <string>

#include <ATen/ATen.h>

namespace joinsum::kernels::products {

/// Says where the shared library of the package scipy_openblas32 is; it is opened by the first product that it is
/// for.
void set_openblas(const std::string& path);

/// Whether OpenBLAS's large products are faster than MKL's on this processor: one with AVX2 alone that is not Intel's.
bool openblas_suits_processor();

/// Whether they are, and the library can be opened.
bool openblas_is_faster();

/// Whether OpenBLAS takes these matrices, or batches of them: on the host, of float32 or float64, with rows or columns
/// that are each in one stretch, and large enough.
bool fits_openblas(const at::Tensor& left, const at::Tensor& right);

/// out = beta · out + alpha · left @ right of matrices that it takes, on torch's threads. The rows or the columns of
/// `out` are each in one stretch.
void openblas_product(const at::Tensor& out, const at::Tensor& left, const at::Tensor& right, double beta,
                      double alpha);

}  // namespace joinsum::kernels::products

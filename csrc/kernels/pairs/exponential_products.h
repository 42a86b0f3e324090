#pragma once

#include <optional>

#include <ATen/ATen.h>

#include "kernels/semiring/pair_operations.h"

/// Sums of exponentials of sums or differences, as products of matrices: Σ e^(x + y) = e^(α + β) Σ e^(x - α) e^(y - β),
/// where α is the largest x of a row and β the largest y of a column. So there are exponentials of the operands and of
/// the result only. Where x + y stays far below α + β the product has too few digits; there the terms are computed one
/// by one. Both functions give nothing where that is so in many places, for other joins, for operands that are infinite
/// (but for -inf) or not numbers, for small extents, and where torch may round the operands of products.
namespace joinsum::kernels::pairs {

/// log Σ over k of e^(left[b, r, k] ⊗ right[b, k, c]), with axes b, r and c.
std::optional<at::Tensor> logarithms_of_sums(semiring::Join join, const at::Tensor& left, const at::Tensor& right);

/// Arrays of sums over k; own has axes b, r and c, left and weight b, r and k, right b, k and c.
struct Shares {
  at::Tensor own;
  at::Tensor left;
  at::Tensor weight;
  at::Tensor right;
};

/// Σ over k of weight[b, r, k] e^(own[b, r, c] ⊗ right[b, k, c] - left[b, r, k]).
std::optional<at::Tensor> sums_of_shares(semiring::Join join, const Shares& of);

}  // namespace joinsum::kernels::pairs

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/ATen.h>

#include "sparse/tensor/tensor.h"

namespace joinsum::kernels::sparse {

/// What joins elements of two matrices: operators that give 0 for two zeros.
enum class ElementJoin : uint8_t { kAdd, kSubtract, kMax, kMin };

/// Products of a matrix A in compressed rows: a first dense level and a sorted list, with fill 0. Rows are divided
/// among torch's threads; results do not depend on their number. Sparse results have compressed rows, too. Of i32, i64
/// and bool, whose sums say whether any product is true, there are products with dense tensors only.
class CompressedRows {
 public:
  using Matrix = std::shared_ptr<const joinsum::sparse::tensor::Tensor>;
  using Result = joinsum::sparse::tensor::Tensor;

  /// Raises PlanError for another tensor.
  explicit CompressedRows(Matrix matrix);
  /// The rows of a matrix in compressed rows, whose arrays it shares, or columns, and those of the transposed matrix,
  /// which shares compressed columns. Nothing of another tensor.
  static std::optional<CompressedRows> of(const Matrix& matrix);
  static std::optional<CompressedRows> of_transposed(const Matrix& matrix);

  /// A x, or A X; an undefined tensor for operands that it does not take: of another dtype or shape, not on the CPU, in
  /// autograd, or of a kind that torch's dispatcher has to see.
  at::Tensor times(const at::Tensor& dense) const;
  /// Aᵀ x, or Aᵀ X, summed in the order of A's rows; likewise.
  at::Tensor transposed_times(const at::Tensor& dense) const;
  /// The sum of each row, and of each column.
  at::Tensor sums() const;
  at::Tensor column_sums() const { return transposed_times(at::ones({rows_}, dtype_)); }
  /// A with each row, or column, times a factor.
  Result scaled_rows(const at::Tensor& factors) const { return scaled(factors, true); }
  Result scaled_columns(const at::Tensor& factors) const { return scaled(factors, false); }
  /// The largest or smallest element of each row, those that are not stored included; there are columns. NaN where one
  /// is.
  at::Tensor extremes(bool largest) const;
  /// The elements of A and B joined, where either has one.
  Result joined(const CompressedRows& other, ElementJoin join) const;
  /// A, each element times that of a dense matrix of any strides.
  Result times_elements(const at::Tensor& dense) const;
  /// A, each element times that of X Yᵀ.
  Result sampled(const at::Tensor& x, const at::Tensor& y) const;
  /// A B. Elements that are sums of products are stored, also where these cancel.
  Result times(const CompressedRows& other) const;
  /// About how many elements A B has: as if B's entries stood in any columns, so that skewed ones have fewer.
  double expected_entries(const CompressedRows& other) const;
  /// M, each element times that of A B; without elements of which A B has none.
  Result times_at(const CompressedRows& other, const CompressedRows& mask) const;

 private:
  template <class T>
  friend class RowProducts;
  Result scaled(const at::Tensor& factors, bool by_rows) const;
  Result with_values(const at::Tensor& values) const;

  Matrix matrix_;
  int64_t rows_;
  int64_t columns_;
  at::ScalarType dtype_;
  std::vector<int32_t> narrow_;     ///< the columns, where they have 32 bits
  std::vector<uint8_t> by_length_;  ///< rows by their lengths, where these are short (`rows::CompressedMatrix`)
};

}  // namespace joinsum::kernels::sparse

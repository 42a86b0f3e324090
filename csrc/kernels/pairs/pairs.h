#pragma once

#include <map>
#include <optional>

#include <ATen/ATen.h>

#include "kernels/semiring/pair_operations.h"
#include "kernels/table/table.h"

namespace joinsum::kernels::pairs {

/// The elements of a dtype that loops take.
std::optional<semiring::Type> type_of(at::ScalarType type);

/// The join whose operands are in each other's place.
semiring::Join reversed(semiring::Join join);

/// Some letters as one axis: their extents, and how far apart their indices lie in the left operand, the right one (0
/// where an operand lacks the letter) and the result.
struct Merged {
  Dims extents;
  Dims left;
  Dims right;
  Dims out;

  int64_t count() const;
  /// Where, by `strides`, which are one of the members, the indices from `begin` on lie.
  Dims offsets(const Dims& strides, int64_t begin, int64_t count) const;
};

/// A contraction as a batch of generalised matrix products: out[r, c] = ⊕ over k of left[r, k] ⊗ right[k, c].
struct PairProblem {
  semiring::Join join;
  semiring::Reduction reduction;
  semiring::Type type;
  Merged batch, rows, columns, inner;
  const void* left;
  const void* right;
  void* out;

  /// The operands, and with them rows and columns, in each other's place.
  PairProblem swapped() const;
};

/// Runs a problem of the CPU on torch's threads.
void run_pairs(const PairProblem& problem);

/// Reduces into `out` what the operands combine to, where joinsum's own loops know the pair, the dtype and the device;
/// says whether they do. On CUDA not logaddexp and not complex numbers. On the CPU panels of
/// both operands are packed, some MiB for each of torch's threads; nothing else is allocated.
bool runs_pairs(const table::Row& row, const table::Subscripts& labels, const at::Tensor& left, const at::Tensor& right,
                const at::Tensor& out);

}  // namespace joinsum::kernels::pairs

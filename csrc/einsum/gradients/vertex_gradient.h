#pragma once

#include <optional>

#include "einsum/gradients/labelled.h"
#include "einsum/gradients/tied_extremes.h"
#include "kernels/table/derivative.h"

namespace joinsum::einsum::gradients {

/// Gradients of one simple vertex for its operands. Joins and maps have them in their rows of the kernel table; those
/// of aggregations are here.
class VertexGradient {
 public:
  /// `value` is the node's; `arrived` is its gradient, for each of its tied terms if it is a step of an extreme. `step`
  /// says that another vertex aggregates it further.
  VertexGradient(const NodePtr& node, const NodePtr& value, Labelled arrived, const TiedTerms& terms, bool step);

  /// For operand `i`; nothing where it is 0 almost everywhere. Raises PlanError for a kernel without a gradient.
  std::optional<Labelled> of(size_t i) const;

 private:
  using Formula = kernels::table::Formula;

  std::optional<Labelled> of_kernel(size_t i) const;
  std::optional<Labelled> of_expression(size_t i) const;
  Labelled of_aggregation() const;
  Labelled of_logarithm() const;
  Labelled of_product() const;
  Labelled sum_of_others(const Labelled& x) const;

  Labelled value(const Formula& formula, size_t i) const;
  Labelled linear(const Formula& formula, size_t i, bool last) const;
  Labelled times_difference(size_t i) const;
  Labelled passed(size_t i, int64_t factor) const;
  Labelled summed(const Labelled& x, int64_t factor) const;
  Kernel kernel_of(const Formula& formula, size_t i) const;

  const Node& node_;
  const Einsum& op_;
  Labelled z_;
  Labelled d_;
  const TiedTerms& terms_;
  const bool step_;
  std::vector<Labelled> operands_;
  Extents extents_;
};

}  // namespace joinsum::einsum::gradients

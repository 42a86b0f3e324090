#pragma once

#include <compare>
#include <optional>
#include <vector>

#include "optimizer/contraction_order.h"
#include "optimizer/division/divisions.h"
#include "optimizer/layouts/move_prices.h"
#include "tra/nodes.h"

namespace joinsum::optimizer {

struct Price {
  double cost = 0;  ///< by the objective
  double flops = 0;

  Price operator+(const Price& other) const { return {cost + other.cost, flops + other.flops}; }
  auto operator<=>(const Price&) const = default;
};

/// For each grid axis the number of the label that it divides, or `division::kNothing`.
using Division = Dims;

/// A tensor whose axes have labels.
struct LabelledTensor {
  einsum::Labels labels;
  einsum::TensorType type;
};

/// The join of two tensors, in operators.
struct JoinProgram {
  tra::Plan plan;
  LabelledTensor result;
  std::vector<relation::RelationType> operands;
};

/// Prices the joins of pairs of tensors of which an einsum of several operands consists, and the moves between them.
class PairwiseJoins {
 public:
  PairwiseJoins(const einsum::Einsum& op, const std::vector<einsum::TensorType>& operands, const OrderFor& wanted);

  /// The labels of the einsum's operands, which divisions name by number.
  const einsum::Labels& labels() const { return labels_; }
  /// The ways to divide a join of tensors with these labels among the sites.
  std::vector<Division> divisions_of(const einsum::Labels& labels) const;
  /// A division, as a tensor that has only `labels` shows it: other labels become `missing`.
  Division projected(Division division, const einsum::Labels& labels, int64_t missing = division::kNothing) const;

  /// The join of two tensors to one with the labels `result`; `last`: to the result of the einsum.
  JoinProgram program_of(const LabelledTensor& left, const LabelledTensor& right, const einsum::Labels& result,
                         bool last) const;
  struct Run {
    const layouts::Layout* result = nullptr;
    Price price;
  };
  /// The join on each site's shards of operands that are divided so; nothing where the sites cannot run it.
  std::optional<Run> run(const JoinProgram& program, const LabelledTensor& left, const LabelledTensor& right,
                         const Division& division);

  /// The layout of a relation whose axes have `labels`, divided so.
  const layouts::Layout* placed(const relation::RelationType& relation, const Division& division,
                                const einsum::Labels& labels);
  double move_price(const layouts::Layout& from, const layouts::Layout& to) { return prices_(from, to); }
  /// The least price of a move to where the result is wanted.
  double price_of_result(const layouts::Layout& from);

 private:
  int64_t parts_of(const std::string& label) const;
  relation::RelationType relation_of(const LabelledTensor& tensor) const;

  const einsum::Einsum& op_;
  const OrderFor& wanted_;
  layouts::Layouts layouts_;
  layouts::MovePrices prices_;
  einsum::Extents extents_;
  einsum::Labels labels_;
};

}  // namespace joinsum::optimizer

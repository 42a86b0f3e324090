#pragma once

#include <vector>

#include "ia/nodes.h"
#include "kernels/dense_call.h"
#include "runtime/relation.h"

namespace joinsum::runtime {

/// What one site gives an operator: the operand's relation type and the boxes the site holds.
struct Operand {
  const RelationType& type;
  std::vector<Piece> pieces;
  /// Whether the operator may write its result into the arrays.
  bool reusable = false;
};

/// The operators of the implementation algebra on the blocks of one site. Each runs a kernel on whole boxes where the
/// kernel treats the parts of a cut axis alike, and key by key where it does not. Flops are added to `flops`.
class LocalOperators {
 public:
  LocalOperators(const kernels::Scalars& scalars, BlockStore& store, int64_t& flops)
      : scalars_(scalars), store_(store), flops_(flops) {}

  std::vector<Piece> join(const ia::LocalJoin& op, const Operand& left, const Operand& right,
                          const RelationType& result) const;
  /// `sum`, the fold of a join whose kernel is a contraction by the same fold; the joined relation is never formed.
  std::vector<Piece> contract(const ia::LocalJoin& op, const ia::LocalAggregate& sum, const Operand& left,
                              const Operand& right, const RelationType& joined) const;
  std::vector<Piece> aggregate(const ia::LocalAggregate& op, const Operand& input, const RelationType& result) const;
  /// The arrays of all results of a call.
  std::vector<at::Tensor> call(const kernels::PreparedCall& prepared, const std::vector<Operand>& operands) const;
  std::vector<Piece> filter(const ia::LocalFilter& op, const Operand& input) const;
  std::vector<Piece> map(const ia::LocalMap& op, const Operand& input, const RelationType& result) const;
  /// Runs the kernels that follow `kernel` on its results, whose relation has type `type`.
  std::vector<Piece> then(const kernels::Kernel& kernel, std::vector<Piece> pieces, RelationType type) const;

 private:
  at::Tensor call(const kernels::Kernel& kernel, const std::vector<at::Tensor>& operands, int64_t batch, int64_t output,
                  const at::Tensor& out) const;
  std::vector<Piece> concatenate_pieces(const ia::LocalAggregate& op, const Operand& input,
                                        const RelationType& result) const;

  const kernels::Scalars& scalars_;
  BlockStore& store_;
  int64_t& flops_;
};

}  // namespace joinsum::runtime

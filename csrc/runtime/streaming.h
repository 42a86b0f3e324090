#pragma once

#include <vector>

#include "ia/fusion.h"
#include "runtime/local_operators.h"

namespace joinsum::runtime {

/// Folds values that are not formed (ia::Formation): tuple by tuple, whose arrays are worked out by blocks, from what
/// they are made of up to the fold, on torch's threads. So memory holds a block for each value and thread, and the
/// result.
class Streaming {
 public:
  /// `operands` and `given`: what the folds read, as Formation::operands lists it.
  Streaming(const ia::Formation& formation, const std::vector<const ia::Node*>& operands,
            const std::vector<Operand>& given, const kernels::Scalars& scalars, BlockStore& store, int64_t& flops);

  /// The tuples of `node` on one site.
  std::vector<Piece> fold(const ia::Node& node, int64_t site) const;

 private:
  const ia::Formation& formation_;
  std::unordered_map<const ia::Node*, const Operand*> given_;
  const kernels::Scalars& scalars_;
  BlockStore& store_;
  int64_t& flops_;
};

}  // namespace joinsum::runtime

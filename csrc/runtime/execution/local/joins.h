#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "relation/typing.h"
#include "runtime/execution/local/dim_modes.h"
#include "runtime/execution/local/local_operator.h"

namespace joinsum::runtime::execution::local {

/// The operands of a join, with what its key dimensions permit.
class JoinOperands {
 public:
  JoinOperands(const ia::LocalJoin& op, const relation::RelationType& left, const relation::RelationType& right,
               const relation::RelationType& joined, const Dims& summed);
  /// Of a join whose reduction over all but `group_by` has type `result`.
  JoinOperands(const ia::LocalJoin& op, const relation::RelationType& left, const relation::RelationType& right,
               const relation::RelationType& joined, const Dims& group_by, const relation::RelationType& result);

  using Visit = std::function<void(const Box&, const at::Tensor& left, const at::Tensor& right)>;
  /// Calls `visit` with each joined part, and both operands' arrays for it.
  void for_each(const PinnedOperand& left, const PinnedOperand& right, const Visit& visit) const;

  /// The joined part, if operands of these boxes have one and it is all of both; nothing otherwise.
  std::optional<Box> only_part(const std::vector<Box>& operands) const;

  relation::JoinKeys keys;
  ModeOperand left;
  ModeOperand right;
  storage::Layout left_layout;
  storage::Layout right_layout;
  std::vector<DimMode> modes;
  Dims batch;
};

/// Walks key by key through the grouping dimensions that `result` links otherwise than `input` does (a reduction of
/// irregular groups may find new links).
void split_relinked(const relation::RelationType& input, const Dims& group_by, const relation::RelationType& result,
                    std::vector<DimMode>& modes);

}  // namespace joinsum::runtime::execution::local

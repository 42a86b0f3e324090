#pragma once

#include <unordered_map>

#include "einsum/nodes.h"

namespace joinsum::einsum::gradients {

/// Folds of joins as the one vertex that they were, for which the joined tensor is not formed. Floats of half width
/// have none: they are folded in single precision there, so that no joined element need equal the extreme.
using WholeFolds = std::unordered_map<const Node*, NodePtr>;

/// The same plan, of einsums of at most two operands, from vertices of four kinds: a diagonal or a broadcast; a join of
/// two operands without a diagonal, that is summed if at all; a map of each element; a fold. Each has a short gradient.
/// Adds the counterpart of each node of `plan` to `made`, and for each fold of a join the one vertex that it was to
/// `folds`. Ties of outputs are left out. Raises PlanError for calls of torch's operators.
Plan simple(const Plan& plan, std::unordered_map<const Node*, NodePtr>& made, WholeFolds& folds);

}  // namespace joinsum::einsum::gradients

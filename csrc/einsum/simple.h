#pragma once

#include <unordered_map>

#include "einsum/nodes.h"

namespace joinsum::einsum {

/// The same plan, of einsums of at most two operands, from vertices of four kinds: a diagonal or a broadcast; a join of
/// two operands without a diagonal, that is summed if at all; a map of each element; a fold. Each has a short gradient.
/// In `made` is what each node of `plan` has become. Ties of outputs are left out.
Plan simple(const Plan& plan, std::unordered_map<const Node*, NodePtr>& made);

}  // namespace joinsum::einsum

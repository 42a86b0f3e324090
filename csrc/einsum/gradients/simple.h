#pragma once

#include <unordered_map>

#include "einsum/nodes.h"

namespace joinsum::einsum::gradients {

/// For aggregations of a join, the one vertex that they are part of, which needs no joined tensor. Half-precision
/// floats have none: that vertex aggregates them in single precision, so that no joined element need equal the extreme.
using WholeAggregations = std::unordered_map<const Node*, NodePtr>;

/// Rewrites a plan of einsums of at most two operands into vertices of four kinds: a diagonal or a broadcast; a join of
/// two operands without a diagonal, that is summed if at all; a map of each element; an aggregation. Each has a short
/// gradient. Adds the counterpart of each node of `plan` to `made`, and for each aggregation of a join the one vertex
/// that it was to `aggregations`. Ties of outputs are left out. Raises PlanError for calls of torch's operators.
Plan simple(const Plan& plan, std::unordered_map<const Node*, NodePtr>& made, WholeAggregations& aggregations);

}  // namespace joinsum::einsum::gradients

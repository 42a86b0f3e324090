#pragma once

#include "einsum/nodes.h"

namespace joinsum::einsum::transforms {

/// The order in which an einsum of several operands is joined: each step takes two of those that are left, by their
/// positions, and puts their result last. As opt_einsum's paths.
using Path = std::vector<std::pair<int64_t, int64_t>>;

/// The step in which a label that no other operand has is aggregated.
enum class AggregationStep {
  kEarly,          ///< with the join of its last operands, if the join distributes over the aggregation
  kWhereTiesStay,  ///< so, but a maximum or minimum only of joins that grow with both operands, where the elements that
                   ///< tie in each step are those that tie in the whole; others in the last step, joined from the left
  kWhereNaNsStay   ///< so, but an extreme or logsumexp of sums in the last step, joined from the left: before, inf may
                   ///< be dropped before it meets -inf
};

/// The same plan from einsums of at most two operands. `paths` gives the orders of vertices with more, by the names
/// that the plan's text gives them; one that is not named is joined from the left. A label is aggregated as soon as no
/// other operand has it, where the join distributes over the aggregation. An expression is split into parts that read
/// two operands each, and aggregated in the last step. Raises PlanError for a path that does not fit, and for one out
/// of order where the join is not associative and commutative.
Plan binary(const Plan& plan, const std::map<std::string, Path>& paths = {});
/// The same; adds the counterpart of each node of `plan` to `made`.
Plan binary(const Plan& plan, const std::map<std::string, Path>& paths, std::unordered_map<const Node*, NodePtr>& made,
            AggregationStep aggregation = AggregationStep::kEarly);

/// Whether kEarly and kWhereNaNsStay differ for a plan: a vertex takes the extreme or logsumexp of sums of three
/// operands or more.
bool may_lose_nans(const Plan& plan);

}  // namespace joinsum::einsum::transforms

#pragma once

#include "einsum/nodes.h"

namespace joinsum::einsum::transforms {

/// The order in which an einsum of several operands is joined: each step takes two of those that are left, by their
/// positions, and puts their result last. As opt_einsum's paths.
using Path = std::vector<std::pair<int64_t, int64_t>>;

/// When a label is folded that no other operand has.
enum class Folding {
  kEarly,          ///< at once, where the join distributes over the aggregation
  kWhereTiesStay,  ///< as that, if the aggregation is a maximum or minimum only where the elements of each step that
                   ///< tie are those of all operands, of joins that grow with both operands; others wait, from the left
  kWhereNaNsStay   ///< as that, but extremes and logsumexps of sums wait, from the left: inf may be folded away before
                   ///< it meets -inf
};

/// The same plan from einsums of at most two operands. `paths` gives the orders of vertices with more, by the names
/// that the plan's text gives them; one that is not named is joined from the left. A label is folded as soon as no
/// other operand has it, where the join distributes over the aggregation. An expression is taken apart where its parts
/// read two operands, and folded in the last step. Raises PlanError for a path that does not
/// fit, and for one out of order where the join is not associative and commutative.
Plan binary(const Plan& plan, const std::map<std::string, Path>& paths = {});
/// The same; adds the counterpart of each node of `plan` to `made`.
Plan binary(const Plan& plan, const std::map<std::string, Path>& paths, std::unordered_map<const Node*, NodePtr>& made,
            Folding folding = Folding::kEarly);

/// Whether folding early and folding where NaNs stay differ: a vertex takes the extreme or logsumexp of sums of three
/// operands or more.
bool may_lose_nans(const Plan& plan);

}  // namespace joinsum::einsum::transforms

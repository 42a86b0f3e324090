#pragma once

#include "ia/analysis/materialization.h"
#include "runtime/execution/local/local_operator.h"
#include "runtime/execution/local/pair_pattern.h"

namespace joinsum::runtime::execution::local {

/// The operator of `node`, which reduces values that are not materialized (ia::analysis::Materialization): it computes
/// them again tile by tile, on torch's threads, each tile in blocks, from what is materialized up to the reduction. So
/// memory holds a block for each value and thread, and the result. `operands` of its run are those that
/// Materialization::operands lists, `boxes` those that the site, one of `sites`, would store of the value that is
/// reduced. The node outlives it.
LocalOperatorPtr prepare_tiled_recomputation(const ia::analysis::Materialization& materialization, const ia::Node& node,
                                             const std::vector<int64_t>& sites);

/// The extremes that such an operator compares joined elements with; none of other operators.
std::vector<ExtremeName> compared_extremes(const LocalOperator& operation);

}  // namespace joinsum::runtime::execution::local

#pragma once

#include <optional>

#include "optimizer/resharding/resharding_model.h"
#include "optimizer/solvers/message_passing.h"

namespace joinsum::optimizer::solvers {

/// The cheapest placement that was found whose plan fits a limit of bytes per site.
struct BranchAndBoundResult {
  std::optional<model::Choice> choice;  ///< empty if none below the limit of cost was found
  bool complete = false;                ///< whether the search was exhaustive: then none is cheaper
};

/// Whether branch and bound can search a graph: few operators, no calls, no tied outputs.
bool is_searchable(const model::PlacementModel& model);

/// The placements that branch and bound searches: those that take at most `bytes` on each site and cost less than
/// `cost`.
struct SearchLimits {
  int64_t bytes;
  double cost;
};

/// Searches the placements of a small graph whose plans fit a limit of bytes per site: depth first, vertex by vertex. A
/// partial placement is pruned where its lower bound (`MessagePassing`) is no less than the best cost so far, or where
/// some site cannot hold what it implies: all inputs, and the operands and result of one operator. Complete placements
/// are lowered, and their plans must fit.
BranchAndBoundResult branch_and_bound(const model::PlacementModel& model, const resharding::ReshardingModel& resharding,
                                      const MessagePassing& bound, const SearchLimits& limits);

}  // namespace joinsum::optimizer::solvers

#pragma once

#include <optional>

#include "optimizer/resharding/resharding_model.h"
#include "optimizer/solvers/message_passing.h"

namespace joinsum::optimizer::solvers {

/// The cheapest placement that a search found within its limits.
template <class Placement>
struct Searched {
  std::optional<Placement> best;  ///< empty if none was found
  bool complete = false;          ///< whether the search was exhaustive: then none is cheaper, or there is none
};

/// Whether branch and bound can search a graph: few operators, no calls, no tied outputs.
bool is_searchable(const model::PlacementModel& model);

/// Searches the placements of a small graph that cost less than `most` and whose plans take at most `limit` bytes on
/// each site: depth first, vertex by vertex. A partial placement is pruned where its lower bound (`MessagePassing`) is
/// no less than the best cost so far, or where some site cannot hold what it implies: all inputs, and the operands and
/// result of one operator. Complete placements are lowered, and their plans must fit.
Searched<model::Choice> branch_and_bound(const model::PlacementModel& model,
                                         const resharding::ReshardingModel& resharding, const MessagePassing& bound,
                                         int64_t limit, double most);

}  // namespace joinsum::optimizer::solvers

#pragma once

#include <optional>
#include <vector>

#include "optimizer/min_sum/min_sum.h"
#include "optimizer/model/vertices.h"

namespace joinsum::optimizer::solvers {

/// A partial placement that has been completed.
struct Completion {
  model::PlacementConstraints constraints;  ///< those of the partial placement and of the problem
  double cost = 0;                          ///< at most the cost of its plan
  std::vector<size_t> strategies;           ///< of the vertices
  model::Choice choice;
};

/// Completes a partial placement: chooses all that it leaves open, by a few passes over the same vertices and move
/// prices. Inputs that the constraints place stay there. Empty where no placement extends it.
std::optional<Completion> complete(const model::PlacementModel& model, const model::PartialPlacement& warm_start,
                                   const min_sum::Deadline& deadline);

}  // namespace joinsum::optimizer::solvers

#pragma once

#include <optional>
#include <vector>

#include "optimizer/placement/lowering.h"
#include "optimizer/search/min_sum/candidates.h"

namespace joinsum::optimizer {

/// What a placement is chosen from.
struct ProblemParts {
  const tra::Plan& plan;
  const PlacementDemands& demands;
  const std::vector<Vertex>& vertices;
  const std::vector<std::vector<double>>& costs;  ///< of vertices, by mode
  PlacementMemory& memory;
};

/// A part of a placement that has been filled in.
struct Completed {
  PlacementDemands demands;   ///< that it meets
  double cost = 0;            ///< no more than that of its plan
  std::vector<size_t> modes;  ///< of the vertices
  Choice choice;
};

/// Fills in one of the given parts of the demands: a good choice of all that it leaves open, found by a few passes over
/// the same vertices and prices of moves. Inputs that the demands place themselves stay there. Nothing where no choice
/// has that part.
std::optional<Completed> completed(const ProblemParts& from, const PartialPlacement& given,
                                   const min_sum::Deadline& deadline);

}  // namespace joinsum::optimizer

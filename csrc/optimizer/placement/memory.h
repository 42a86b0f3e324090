#pragma once

#include <mutex>

#include "optimizer/placement/move_prices.h"
#include "optimizer/placement/runs.h"

namespace joinsum::optimizer {

/// What placements of graphs on one grid, by one objective, have in common: layouts, runs of operators and prices of
/// moves, each computed once. Problems that share it take turns.
struct PlacementMemory {
  PlacementMemory(ia::Grid grid, Objective minimised, Cluster described)
      : objective(minimised), cluster(std::move(described)), places(std::move(grid)) {}

  const Objective objective;
  const Cluster cluster;
  Places places;
  Runs runs{places, objective, cluster};
  MovePrices moves{objective, cluster};
  std::mutex turn;  ///< held while a problem is set up and solved
};

}  // namespace joinsum::optimizer

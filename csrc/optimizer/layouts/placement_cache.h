#pragma once

#include <mutex>

#include "optimizer/layouts/move_prices.h"
#include "optimizer/layouts/operator_costs.h"

namespace joinsum::optimizer::layouts {

/// What placements of graphs on one grid, by one objective, have in common: layouts, runs of operators and prices of
/// moves, each computed once. Problems that share it take turns.
struct PlacementCache {
  PlacementCache(ia::Grid grid, cost::Objective minimised, cost::Cluster described)
      : objective(minimised), cluster(std::move(described)), layouts(std::move(grid)) {}

  const cost::Objective objective;
  const cost::Cluster cluster;
  Layouts layouts;
  OperatorCosts operator_costs{layouts, objective, cluster};
  MovePrices move_prices{objective, cluster};
  std::mutex turn;  ///< held while a problem is set up and solved
};

}  // namespace joinsum::optimizer::layouts

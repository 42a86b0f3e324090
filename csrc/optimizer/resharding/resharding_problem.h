#pragma once

#include <optional>
#include <vector>

#include "optimizer/min_sum/min_sum.h"
#include "optimizer/resharding/resharding.h"

namespace joinsum::optimizer::resharding {

/// The cost of placements of a graph: vertices that each choose a strategy, and values that are resharded from one
/// vertex to others. A move that several readers share counts once.
struct ReshardingProblem {
  /// A vertex that produces or reads a value; for each strategy, the position of its layout in the routes.
  struct Member {
    size_t vertex;
    std::vector<size_t> layouts;
  };
  struct Value {
    std::shared_ptr<const Routes> routes;
    std::vector<Member> members;  ///< the producer, then readers
  };

  std::vector<std::vector<double>> costs;  ///< of each vertex, by strategy
  std::vector<Value> values;

  /// The resharding of a value if the vertices run these strategies.
  ReshardingCost resharding(const Value& value, const std::vector<size_t>& strategies) const;
  /// Its cost for each staging layout, by position in the routes; the last is that of no staging.
  std::vector<double> costs_by_staged(const Value& value, const std::vector<size_t>& strategies) const;
  double cost(const std::vector<size_t>& strategies) const;
  /// Changes one strategy at a time as long as the cost falls.
  void improve(std::vector<size_t>& strategies, const min_sum::Deadline& deadline) const;
};

}  // namespace joinsum::optimizer::resharding

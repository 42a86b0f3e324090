#pragma once

#include <optional>
#include <vector>

#include "optimizer/placement/delivery.h"
#include "optimizer/search/min_sum/candidates.h"

namespace joinsum::optimizer {

/// Vertices that each choose a mode, and values that are delivered from one to others: what the placements of a graph
/// cost, with moves that several readers share counted once.
struct DeliveryProblem {
  /// A vertex that makes or reads a value, and by mode the position of its place in the routes.
  struct Member {
    size_t vertex;
    std::vector<size_t> places;
  };
  struct Value {
    std::shared_ptr<const Routes> routes;
    std::vector<Member> members;  ///< the maker, then readers
  };

  std::vector<std::vector<double>> costs;  ///< of each vertex, by mode
  std::vector<Value> values;

  /// How a value is delivered if its members run in `modes`.
  Delivered delivery(const Value& value, const std::vector<size_t>& modes) const;
  /// What it costs by where it is put, as a position in the routes; the last is nowhere.
  std::vector<double> costs_by_put(const Value& value, const std::vector<size_t>& modes) const;
  double cost(const std::vector<size_t>& modes) const;
  /// Changes modes one at a time while that gains.
  void improve(std::vector<size_t>& modes, const min_sum::Deadline& deadline) const;
};

}  // namespace joinsum::optimizer

#pragma once

#include <limits>
#include <vector>

#include "optimizer/placement/places.h"
#include "optimizer/score.h"

namespace joinsum::optimizer {

/// The price of what may not be.
constexpr double kForbidden = std::numeric_limits<double>::infinity();

/// Prices moves between two places of one relation type, each once. Under `seconds` on more than a few sites it takes
/// the busiest receiver for the busiest link, and leaves out the folds of partials: never more than a move takes.
class MovePrices {
 public:
  MovePrices(Objective objective, const Cluster& cluster) : objective_(objective), cluster_(cluster) {}

  double operator()(const Place& from, const Place& to);

 private:
  double computed(const ia::PhysicalType& from, const ia::PhysicalType& to) const;

  Objective objective_;
  const Cluster& cluster_;
  std::vector<std::vector<std::vector<double>>> prices_;  ///< by relation type, and the numbers of both places
};

}  // namespace joinsum::optimizer

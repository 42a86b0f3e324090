#pragma once

#include <limits>
#include <vector>

#include "optimizer/cost/objective.h"
#include "optimizer/layouts/layouts.h"
#include "optimizer/min_sum/min_sum.h"

namespace joinsum::optimizer::layouts {

/// Prices moves between two layouts of one relation type, each once. Under `seconds` on more than a few sites it takes
/// the busiest receiver for the busiest link, and leaves out the reductions of partials: never more than a move takes.
class MovePrices {
 public:
  MovePrices(cost::Objective objective, const cost::Cluster& cluster) : objective_(objective), cluster_(cluster) {}

  double operator()(const Layout& from, const Layout& to);

 private:
  double computed(const ia::PhysicalType& from, const ia::PhysicalType& to) const;

  cost::Objective objective_;
  const cost::Cluster& cluster_;
  std::vector<std::vector<std::vector<double>>> prices_;  ///< by relation type, and the numbers of both layouts
};

}  // namespace joinsum::optimizer::layouts

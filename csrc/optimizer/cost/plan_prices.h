#pragma once

#include <unordered_map>

#include "optimizer/cost/cost.h"

namespace joinsum::optimizer::cost {

/// Sites up to which the messages of moves are listed one by one; beyond, moves are priced in closed form, which is
/// exact in bytes and takes the busiest receiver for the busiest link in seconds.
constexpr int64_t kMostSitesListed = 64;

/// The cost of each node of a plan.
class PlanPrices {
 public:
  PlanPrices(const ia::Plan& plan, const Cluster& cluster);

  const Figures& of(const ia::Node& node) const { return prices_.at(&node); }
  /// The sum over the nodes; seconds also count the agreement that opens a run.
  const Figures& total() const { return total_; }
  /// The bytes that sites receive in moves whose messages were listed.
  const ReceivedBytes& received() const { return received_; }

 private:
  std::unordered_map<const ia::Node*, Figures> prices_;
  Figures total_;
  ReceivedBytes received_;
};

}  // namespace joinsum::optimizer::cost

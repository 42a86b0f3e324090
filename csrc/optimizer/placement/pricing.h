#pragma once

#include <unordered_map>

#include "optimizer/cost/cost.h"

namespace joinsum::optimizer {

struct NodePrice {
  int64_t wire_bytes = 0;
  double seconds = 0;
};

/// Sites up to which the messages of moves are listed one by one; beyond, moves are priced in closed form, which is
/// exact in bytes and takes the busiest receiver for the busiest link in seconds.
constexpr int64_t kMostSitesListed = 64;

/// What each node of a plan costs.
class PlanPrices {
 public:
  PlanPrices(const ia::Plan& plan, const Cluster& cluster);

  const NodePrice& of(const ia::Node& node) const { return prices_.at(&node); }
  int64_t wire_bytes() const { return wire_bytes_; }
  double seconds() const { return seconds_; }  ///< with what opens a run
  /// By moves whose messages were listed.
  const ReceivedBytes& received() const { return received_; }

 private:
  std::unordered_map<const ia::Node*, NodePrice> prices_;
  int64_t wire_bytes_ = 0;
  double seconds_ = 0;
  ReceivedBytes received_;
};

}  // namespace joinsum::optimizer

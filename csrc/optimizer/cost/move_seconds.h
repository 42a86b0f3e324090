#pragma once

#include "ia/analysis/exchange.h"
#include "ia/analysis/volume.h"
#include "optimizer/cost/cost.h"

namespace joinsum::optimizer::cost {

/// Bytes between pairs of sites in one stage of a move, summed as links see them.
struct StageTraffic {
  std::vector<int64_t> sent;      ///< by site
  std::vector<int64_t> received;  ///< by site
  int64_t bytes = 0;              ///< of all messages
  Dims axes;                      ///< grid axes that some message crosses, ascending
  int64_t busiest() const;
};
StageTraffic stage_traffic(const std::vector<ia::analysis::Transfer>& stage, const ia::PhysicalType& type);

/// Seconds until the messages of one stage have arrived: the cluster's flat α-β for the busiest site, or its profile's
/// curves, between one pair's and all sites' by how evenly the sites are busy.
double link_seconds(const StageTraffic& stage, int64_t sites, const Cluster& cluster);

/// Those of them that a stage takes which carries next to nothing.
double latency_seconds(const StageTraffic& stage, const Cluster& cluster);

/// The same as `link_seconds` for a whole move in closed form, as if all sites were as busy as the busiest receiver.
double link_seconds(const ia::analysis::Volume& volume, const ia::PhysicalType& source, const ia::PhysicalType& target,
                    const Cluster& cluster);
double latency_seconds(const ia::PhysicalType& source, const ia::PhysicalType& target, const Cluster& cluster);

/// Whether the messages of a move are so large that they are not joined with those of others, if sites are equally
/// busy.
bool travels_separately(const ia::analysis::Volume& volume, const ia::PhysicalType& source,
                        const ia::PhysicalType& target);

/// Seconds of a move's copies and reductions, at the sites that do most: parts cut out of blocks to be sent, partials
/// added, arrived parts put together. Needs a profile.
double handling_seconds(const ia::analysis::Exchange& exchange, const ia::PhysicalType& source,
                        const ia::PhysicalType& target, const Cluster& cluster);

}  // namespace joinsum::optimizer::cost

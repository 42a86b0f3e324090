#include "optimizer/cost/move_seconds.h"

#include <algorithm>

#include "ia/analysis/flops.h"
#include "ia/analysis/schedule.h"
#include "optimizer/cost/profile.h"

namespace joinsum::optimizer::cost {
namespace {

int64_t most(const std::vector<int64_t>& values) { return *std::max_element(values.begin(), values.end()); }

/// Whether the part `box` of the block that stores `held` is contiguous.
bool contiguous(const relation::RelationType& relation, const Box& held, const Box& box) {
  bool partial = false;
  const auto visit = [&](int64_t extent, int64_t of) {
    if (partial && extent > 1) return false;
    partial = partial || extent < of;
    return true;
  };
  for (int64_t a = relation.rank() - 1; a >= 0; --a) {
    if (!visit(relation.axes[a].extent_over(box), relation.axes[a].extent_over(held))) return false;
  }
  for (int64_t d = relation.arity() - 1; d >= 0; --d) {
    if (relation.axes_of(d).empty() && !visit(box.extent(d), held.extent(d))) return false;
  }
  return true;
}

/// Bytes that senders copy to cut parts out of their blocks.
std::vector<int64_t> cut_bytes(const std::vector<ia::analysis::Transfer>& stage, const ia::PhysicalType& from) {
  std::vector<int64_t> bytes(from.sites());
  if (!from.holding.regular()) return bytes;
  for (const ia::analysis::Transfer& transfer : stage) {
    const auto& held = from.holding.box(transfer.from);
    if (!held || contiguous(from.relation, *held, transfer.box)) continue;
    bytes[transfer.from] += from.relation.bytes_of(from.relation.elements_over(transfer.box));
  }
  return bytes;
}

/// Bytes of the blocks that sites assemble from several parts; none where one part is the block.
std::vector<int64_t> assembled_bytes(const ia::analysis::Exchange& exchange, const ia::PhysicalType& target) {
  std::vector<int64_t> bytes(target.sites());
  const ia::PhysicalType& reduced = exchange.reduced;
  if (!target.holding.regular() || !reduced.holding.regular()) return bytes;
  std::vector<bool> complete(target.sites());
  for (const ia::analysis::Transfer& transfer : exchange.copy) {
    const auto& wanted = target.holding.box(transfer.to);
    if (wanted && transfer.box.contains(*wanted)) complete[transfer.to] = true;
  }
  for (int64_t site = 0; site < target.sites(); ++site) {
    const auto& wanted = target.holding.box(site);
    const auto& held = reduced.holding.box(site);
    if (!wanted || wanted->empty() || complete[site] || (held && held->contains(*wanted))) continue;
    bytes[site] = target.bytes(site);
  }
  return bytes;
}

/// Bytes of boxes that several reduced shares make.
int64_t joined_bytes(const ia::analysis::Exchange& exchange) {
  std::vector<int64_t> bytes(exchange.reduced.sites());
  const relation::RelationType& relation = exchange.reduced.relation;
  for (const ia::analysis::Transfer& transfer : exchange.gather)
    bytes[transfer.to] += relation.bytes_of(transfer.elements());
  if (most(bytes) == 0) return 0;
  for (const ia::analysis::Share& share : exchange.shares)
    bytes[share.site] += relation.bytes_of(share.end - share.begin);
  return most(bytes);
}

/// Seconds of the site that reduces longest.
double reduction_seconds(const ia::analysis::Exchange& exchange, const Cluster& cluster) {
  if (exchange.reduction.empty()) return 0;
  const kernels::table::Row& row = *kernels::table::find_row(exchange.reduction);
  const int64_t each = byte_size(exchange.reduced.relation.dtype);
  std::vector<double> seconds(exchange.reduced.sites());
  for (const ia::analysis::Share& share : exchange.shares) {
    if (share.begin == share.end) continue;
    const auto calls = static_cast<double>(share.holders.size()) - 1;
    const double one = cluster.profile->elementwise_call(row, each, static_cast<double>(share.end - share.begin));
    if (one > 0 && calls > 0) seconds[share.site] += calls * one;
  }
  const double longest = *std::max_element(seconds.begin(), seconds.end());
  if (longest > 0) return longest;
  return static_cast<double>(ia::analysis::busiest_flops(exchange, exchange.reduced.sites())) /
         cluster.flops_per_second;
}

/// The grid axes that messages from one type to the other may cross.
Dims axes_between(const ia::PhysicalType& source, const ia::PhysicalType& target) {
  const ia::GridPlacement* from = source.placement.grid();
  const ia::GridPlacement* to = target.placement.grid();
  const bool grid = from != nullptr && to != nullptr;
  return grid ? ia::differing_axes(*from, *to) : all_dims(target.grid.rank());
}

/// The most sites that exchange messages with one another.
int64_t sites_between(const ia::PhysicalType& source, const ia::PhysicalType& target) {
  int64_t sites = 1;
  for (const int64_t axis : axes_between(source, target)) sites *= target.grid.axes[axis];
  return sites;
}

/// What was measured of the axes that messages from one type to the other cross, if anything was.
const LinkProfile* link_between(const ia::PhysicalType& source, const ia::PhysicalType& target,
                                const Cluster& cluster) {
  return cluster.profile ? cluster.profile->link(axes_between(source, target)) : nullptr;
}

}  // namespace

int64_t StageTraffic::busiest() const { return std::max(most(sent), most(received)); }

StageTraffic stage_traffic(const std::vector<ia::analysis::Transfer>& stage, const ia::PhysicalType& type) {
  StageTraffic out;
  out.sent.resize(type.sites());
  out.received.resize(type.sites());
  const relation::RelationType& relation = type.relation;
  const Dims& axes = type.grid.axes;
  std::vector<bool> crossed(axes.size());
  for (const ia::analysis::Transfer& transfer : stage) {
    const int64_t bytes = relation.bytes_of(transfer.elements());
    out.sent[transfer.from] += bytes;
    out.received[transfer.to] += bytes;
    out.bytes += bytes;
    int64_t from = transfer.from;
    int64_t to = transfer.to;
    for (size_t i = axes.size(); i-- > 0; from /= axes[i], to /= axes[i]) {
      if (from % axes[i] != to % axes[i]) crossed[i] = true;
    }
  }
  for (size_t i = 0; i < axes.size(); ++i) {
    if (crossed[i]) out.axes.push_back(static_cast<int64_t>(i));
  }
  return out;
}

double link_seconds(const StageTraffic& stage, int64_t sites, const Cluster& cluster) {
  const auto busiest = static_cast<double>(stage.busiest());
  const LinkProfile* link = cluster.profile ? cluster.profile->link(stage.axes) : nullptr;
  if (link == nullptr) return cluster.latency_seconds + busiest / cluster.bytes_per_second;
  const double all = link->all.at(busiest);
  if (link->pair.empty() || sites < 2) return all;
  const double pair = link->pair.at(busiest);
  const double busy = busiest > 0 ? static_cast<double>(stage.bytes) / busiest : 1;
  const double evenness = std::clamp((busy - 1) / static_cast<double>(sites - 1), 0.0, 1.0);
  return pair + evenness * (all - pair);
}

double latency_seconds(const StageTraffic& stage, const Cluster& cluster) {
  const LinkProfile* link = cluster.profile ? cluster.profile->link(stage.axes) : nullptr;
  return link == nullptr ? cluster.latency_seconds : link->all.first();
}

double link_seconds(const ia::analysis::Volume& volume, const ia::PhysicalType& source, const ia::PhysicalType& target,
                    const Cluster& cluster) {
  const auto stages = static_cast<double>(volume.stages);
  const auto bytes = static_cast<double>(target.relation.bytes_of(volume.busiest));
  const LinkProfile* link = stages > 0 ? link_between(source, target, cluster) : nullptr;
  if (link == nullptr) return stages * cluster.latency_seconds + bytes / cluster.bytes_per_second;
  return stages * link->all.at(bytes / stages);
}

double latency_seconds(const ia::PhysicalType& source, const ia::PhysicalType& target, const Cluster& cluster) {
  const LinkProfile* link = link_between(source, target, cluster);
  return link == nullptr ? cluster.latency_seconds : link->all.first();
}

bool travels_separately(const ia::analysis::Volume& volume, const ia::PhysicalType& source,
                        const ia::PhysicalType& target) {
  const int64_t sites = sites_between(source, target);
  const int64_t messages = std::max<int64_t>((sites - 1) * volume.stages, 1);
  const int64_t bytes = target.relation.bytes_of(volume.busiest) / messages;
  // A partial is as large as the messages that it is divided into, and the site's own share.
  return (volume.reduce > 0 ? sites * bytes : bytes) >= ia::analysis::kSeparateBytes;
}

double handling_seconds(const ia::analysis::Exchange& exchange, const ia::PhysicalType& source,
                        const ia::PhysicalType& target, const Cluster& cluster) {
  const Profile& profile = *cluster.profile;
  double seconds = reduction_seconds(exchange, cluster);
  for (const int64_t bytes :
       {most(cut_bytes(exchange.reduce, source)), joined_bytes(exchange),
        most(cut_bytes(exchange.copy, exchange.reduced)), most(assembled_bytes(exchange, target))}) {
    if (bytes > 0) seconds += std::max(profile.copy(static_cast<double>(bytes)), 0.0);
  }
  return seconds;
}

}  // namespace joinsum::optimizer::cost

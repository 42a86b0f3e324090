#include "optimizer/cost/cost.h"

#include <algorithm>

#include "ia/analysis/exchange.h"
#include "ia/analysis/flops.h"
#include "ia/analysis/materialization.h"
#include "ia/analysis/volume.h"
#include "ia/text.h"
#include "optimizer/cost/local_seconds.h"
#include "optimizer/cost/move_seconds.h"
#include "optimizer/cost/peak.h"

namespace joinsum::optimizer::cost {
namespace {

using ia::analysis::busiest_flops;

/// Sites up to which an estimate lists the messages of moves one by one.
constexpr int64_t kMostSitesListed = 64;
/// What a message that is not joined with others takes besides its bytes, of the latency of the first message of a
/// group: 0.07 to 0.17 on Gloo between 2 and 4 ranks.
constexpr double kLatencyOfSeparateMessage = 0.125;
/// Kernels over entries of sparse tensors take so many times as long for a flop as matrix products, about.
constexpr double kSlowerOverEntries = 32;

/// The total of the messages of a move.
struct Traffic {
  int64_t bytes = 0;
  double seconds = 0;
  double latency = 0;             ///< of its stage with the longest
  std::vector<int64_t> received;  ///< by each site, in the stage that brings it most
};

/// The stages follow one another; each lasts as long as its busiest link in its busier direction.
Traffic traffic_of(const ia::analysis::Exchange& exchange, const ia::PhysicalType& type, const Cluster& cluster) {
  Traffic out;
  out.received.resize(type.sites());
  for (const auto* stage : {&exchange.reduce, &exchange.gather, &exchange.copy}) {
    if (stage->empty()) continue;
    const StageTraffic traffic = stage_traffic(*stage, type);
    out.bytes += traffic.bytes;
    out.seconds += link_seconds(traffic, type.sites(), cluster);
    out.latency = std::max(out.latency, latency_seconds(traffic, cluster));
    for (size_t site = 0; site < out.received.size(); ++site)
      out.received[site] = std::max(out.received[site], traffic.received[site]);
  }
  return out;
}

NodeCost move_in_closed_form(const ia::Node& move, const Cluster& cluster) {
  const ia::PhysicalType& source = move.input(0)->type();
  const ia::analysis::Volume volume = ia::analysis::volume(source, move.type());
  NodeCost out;
  out.paper_floats = paper_floats(move);
  out.wire_bytes = source.relation.bytes_of(volume.elements());
  out.link_seconds = link_seconds(volume, source, move.type(), cluster);
  out.latency_seconds = latency_seconds(source, move.type(), cluster);
  out.seconds = out.link_seconds;
  return out;
}

class Pricing {
 public:
  Pricing(const Cluster& cluster, ReceivedBytes* received) : cluster_(cluster), received_(received) {}

  NodeCost price(const ia::Node& node, Fusion fusion) const {
    NodeCost cost;
    if (fusion == Fusion::kCall) return cost;
    if (ia::is_move(node.operation())) {
      price_move(node, cost);
    } else {
      price_local(node, fusion, cost);
    }
    const bool runs = node.as<ia::Input>() == nullptr && fusion != Fusion::kJoin;
    if (cluster_.profile && runs) cost.seconds += cluster_.profile->node_seconds;
    return cost;
  }

 private:
  void price_move(const ia::Node& node, NodeCost& cost) const {
    const ia::PhysicalType& source = node.input(0)->type();
    const ia::analysis::Exchange exchange = ia::analysis::exchange(source, node.type());
    Traffic traffic = traffic_of(exchange, node.type(), cluster_);
    cost.paper_floats = paper_floats(node);
    cost.wire_bytes = traffic.bytes;
    cost.flops = busiest_flops(exchange, node.type().sites());
    cost.link_seconds = traffic.seconds;
    cost.latency_seconds = traffic.latency;
    cost.seconds = traffic.seconds + (cluster_.profile ? handling_seconds(exchange, source, node.type(), cluster_)
                                                       : flat_seconds(cost.flops));
    if (received_ != nullptr) received_->emplace(&node, std::move(traffic.received));
  }

  /// The profile prices a fused join with its sum, which is where the executor computes it.
  void price_local(const ia::Node& node, Fusion fusion, NodeCost& cost) const {
    const bool sums_join = fusion == Fusion::kSum;
    cost.flops = busiest_flops(node, sums_join);
    if (!cluster_.profile) {
      const auto* call = node.as<ia::LocalCall>();
      const bool of_entries = call != nullptr && kernels::call::counts_entries(call->call);
      cost.seconds = flat_seconds(cost.flops) * (of_entries ? kSlowerOverEntries : 1);
    } else if (fusion != Fusion::kJoin) {
      const double seconds = local_seconds(node, sums_join, *cluster_.profile);
      const int64_t flops = cost.flops + (sums_join ? busiest_flops(*node.input(0), false) : 0);
      cost.seconds = seconds < 0 ? flat_seconds(flops) : seconds;
    }
  }

  double flat_seconds(int64_t flops) const { return static_cast<double>(flops) / cluster_.flops_per_second; }

  const Cluster& cluster_;
  ReceivedBytes* received_;
};

/// Prices a plan that may take `limit` bytes on a site. Moves are priced by their messages if these are `listed`, else
/// in closed form.
PlanCost priced(const ia::Plan& plan, const Cluster& cluster, bool listed, std::optional<int64_t> limit) {
  const Fusions fusions(plan);
  const ia::analysis::Materialization materialization(plan);
  const auto names = ia::node_names(plan);
  ReceivedBytes received;
  const Pricing pricing(cluster, &received);
  PlanCost out;
  if (cluster.profile && plan.grid().sites() > 1) out.run_seconds = cluster.profile->run_seconds;
  out.seconds = out.run_seconds;
  for (const ia::NodePtr& node : plan.order()) {
    NodeCost cost = listed || !ia::is_move(node->operation()) ? pricing.price(*node, fusions.of(*node))
                                                              : move_in_closed_form(*node, cluster);
    cost.node = names.at(node.get());
    cost.operation = ia::operation_text(node->operation(), node->type());
    out += cost;
    out.flops += cost.flops;
    out.nodes.push_back(std::move(cost));
  }
  const ia::analysis::SecondsOf seconds_of = schedule_seconds(plan, cluster);
  const ia::analysis::Schedule schedule(plan, materialization, seconds_of);
  if (seconds_of) {
    const double hidden = out.seconds - out.run_seconds - schedule.seconds();
    const double rounding = 1e-9 * static_cast<double>(out.nodes.size());  // a schedule counts nanoseconds
    out.hidden_seconds = hidden > rounding ? hidden : 0;
    out.seconds -= out.hidden_seconds;
  }
  out.peak = peak_of(plan, materialization, schedule, received, limit);
  for (size_t i = 0; i < out.nodes.size(); ++i) {
    const auto found = out.peak.by_node.find(plan.order()[i].get());
    if (found != out.peak.by_node.end()) out.nodes[i].peak_bytes = found->second;
  }
  return out;
}

}  // namespace

double paper_floats(const ia::Node& node) {
  const auto* broadcast = node.as<ia::Broadcast>();
  const auto* shuffle = node.as<ia::Shuffle>();
  if (broadcast == nullptr && shuffle == nullptr) return 0;
  const relation::RelationType& relation = node.type().relation;
  const auto floats = static_cast<double>(relation.elements_over(Box::below(relation.frontier)));
  const Dims axes = broadcast != nullptr ? broadcast->axes : ia::Placement(shuffle->target).axes_in<ia::Replicated>();
  return floats * static_cast<double>(checked_product("cost", project(node.type().grid.axes, axes)));
}

Fusion Fusions::of(const ia::Node& node) const {
  if (joins_.contains(&node)) return Fusion::kJoin;
  if (further_.contains(&node)) return Fusion::kCall;
  const bool sums = !node.inputs().empty() && joins_.contains(node.input(0).get());
  return sums ? Fusion::kSum : Fusion::kNone;
}

NodeCost node_cost(const ia::Node& node, Fusion fusion, const Cluster& cluster, ReceivedBytes* received) {
  return Pricing(cluster, received).price(node, fusion);
}

ia::analysis::SecondsOf schedule_seconds(const ia::Plan& plan, const Cluster& cluster) {
  if (!cluster.profile) return {};
  const bool listed = plan.grid().sites() <= kMostSitesListed;
  return [fusions = std::make_shared<const Fusions>(plan), cluster, listed](const ia::Node& node) {
    const bool move = ia::is_move(node.operation());
    const NodeCost cost =
        move && !listed ? move_in_closed_form(node, cluster) : node_cost(node, fusions->of(node), cluster);
    if (!move) return ia::analysis::NodeSeconds{.site = cost.seconds};
    const ia::PhysicalType& source = node.input(0)->type();
    const ia::analysis::Volume volume = ia::analysis::volume(source, node.type());
    const double latencies = static_cast<double>(volume.stages) * cost.latency_seconds;
    double link = std::max(cost.link_seconds - latencies, 0.0);
    if (travels_separately(volume, source, node.type())) link += kLatencyOfSeparateMessage * latencies;
    return ia::analysis::NodeSeconds{cost.seconds - cost.link_seconds, cost.latency_seconds, link,
                                     cluster.profile->overlap};
  };
}

NodeCost total_cost(const ia::Plan& plan, const Cluster& cluster) {
  const Fusions fusions(plan);
  NodeCost out;
  for (const ia::NodePtr& node : plan.order()) {
    const NodeCost cost = node_cost(*node, fusions.of(*node), cluster);
    out += cost;
    out.flops += cost.flops;
  }
  return out;
}

PlanCost plan_cost(const ia::Plan& plan, const Cluster& cluster) {
  return priced(plan, cluster, true, cluster.memory_bytes);
}

PlanCost estimated_cost(const ia::Plan& plan, const Cluster& cluster) {
  return priced(plan, cluster, plan.grid().sites() <= kMostSitesListed, {});
}

}  // namespace joinsum::optimizer::cost

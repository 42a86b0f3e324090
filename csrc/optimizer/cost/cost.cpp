#include "optimizer/cost/cost.h"

#include <algorithm>

#include "ia/exchange.h"
#include "ia/fusion.h"
#include "ia/text.h"
#include "optimizer/cost/flops.h"
#include "optimizer/cost/local_seconds.h"
#include "optimizer/cost/move_seconds.h"
#include "optimizer/cost/peak.h"

namespace joinsum::optimizer {
namespace {

/// The paper's rule: f is counted by the frontier, wherever the tuples are and whatever is already in place.
/// Source: TRA paper, section 5.3.
double paper_floats(const ia::Node& node) {
  const auto* broadcast = node.as<ia::Broadcast>();
  if (broadcast == nullptr && node.as<ia::Shuffle>() == nullptr) return 0;
  const RelationType& relation = node.type().relation;
  const auto floats = static_cast<double>(relation.elements_over(Box::below(relation.frontier)));
  if (broadcast == nullptr) return floats;
  const Dims sizes = project(node.type().grid.axes, broadcast->axes);
  return floats * static_cast<double>(checked_product("cost", sizes));
}

/// What the messages of a move amount to.
struct Traffic {
  int64_t bytes = 0;
  double seconds = 0;
  std::vector<int64_t> received;  ///< by each site, in the stage that brings it most
};

/// The stages follow one another; each lasts as long as its busiest link in its busier direction.
Traffic traffic_of(const ia::Exchange& exchange, const ia::PhysicalType& type, const Cluster& cluster) {
  Traffic out;
  out.received.resize(type.sites());
  for (const auto* stage : {&exchange.reduce, &exchange.gather, &exchange.copy}) {
    if (stage->empty()) continue;
    const StageTraffic traffic = stage_traffic(*stage, type);
    out.bytes += traffic.bytes;
    out.seconds += link_seconds(traffic, type.sites(), cluster);
    for (size_t site = 0; site < out.received.size(); ++site)
      out.received[site] = std::max(out.received[site], traffic.received[site]);
  }
  return out;
}

/// Prices the nodes of one plan.
class Pricing {
 public:
  Pricing(const ia::Plan& plan, const Cluster& cluster)
      : cluster_(cluster), fused_(ia::fused_joins(plan)), names_(ia::node_names(plan)) {}

  NodeCost price(const ia::Node& node) {
    NodeCost cost{names_.at(&node), ia::operation_text(node.operation(), node.type())};
    const bool computes = node.as<ia::Broadcast>() == nullptr && node.as<ia::Shuffle>() == nullptr;
    if (computes) {
      price_local(node, cost);
    } else {
      price_move(node, cost);
    }
    const bool runs = node.as<ia::Input>() == nullptr && !fused_.contains(&node);
    if (cluster_.profile && runs) cost.seconds += cluster_.profile->node_seconds;
    return cost;
  }

  const ReceivedBytes& received() const { return received_; }

 private:
  void price_move(const ia::Node& node, NodeCost& cost) {
    const ia::PhysicalType& source = node.input(0)->type();
    const ia::Exchange exchange = ia::exchange(source, node.type());
    Traffic traffic = traffic_of(exchange, node.type(), cluster_);
    cost.paper_floats = paper_floats(node);
    cost.wire_bytes = traffic.bytes;
    cost.flops = busiest_flops(exchange, node.type().sites());
    cost.seconds = traffic.seconds + (cluster_.profile ? handling_seconds(exchange, source, node.type(), cluster_)
                                                       : flat_seconds(cost.flops));
    received_.emplace(&node, std::move(traffic.received));
  }

  /// The profile prices a fused join with its sum, which is where the executor computes it.
  void price_local(const ia::Node& node, NodeCost& cost) const {
    const bool sums_join = !node.inputs().empty() && fused_.contains(node.input(0).get());
    cost.flops = busiest_flops(node, sums_join);
    if (!cluster_.profile) {
      cost.seconds = flat_seconds(cost.flops);
    } else if (!fused_.contains(&node)) {
      const double seconds = local_seconds(node, sums_join, *cluster_.profile);
      const int64_t flops = sums_join ? busiest_flops(*node.input(0), false) : cost.flops;
      cost.seconds = seconds < 0 ? flat_seconds(flops) : seconds;
    }
  }

  double flat_seconds(int64_t flops) const { return static_cast<double>(flops) / cluster_.flops_per_second; }

  const Cluster& cluster_;
  std::unordered_set<const ia::Node*> fused_;
  std::unordered_map<const ia::Node*, std::string> names_;
  ReceivedBytes received_;
};

}  // namespace

PlanCost cost(const ia::Plan& plan, const Cluster& cluster) {
  Pricing pricing(plan, cluster);
  PlanCost out;
  out.cluster = cluster;
  if (cluster.profile && plan.grid().sites() > 1) out.run_seconds = cluster.profile->run_seconds;
  out.seconds = out.run_seconds;
  for (const ia::NodePtr& node : plan.order()) {
    out.nodes.push_back(pricing.price(*node));
    const NodeCost& cost = out.nodes.back();
    out.paper_floats += cost.paper_floats;
    out.wire_bytes += cost.wire_bytes;
    out.flops += cost.flops;
    out.seconds += cost.seconds;
  }
  out.peak_bytes = peak_bytes(plan, pricing.received(), cluster.memory_bytes);
  return out;
}

}  // namespace joinsum::optimizer

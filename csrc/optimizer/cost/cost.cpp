#include "optimizer/cost/cost.h"

#include <algorithm>
#include <array>

#include "ia/exchange.h"
#include "ia/fusion.h"
#include "ia/text.h"
#include "optimizer/cost/flops.h"
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
    std::vector<int64_t> sent(type.sites());
    std::vector<int64_t> received(type.sites());
    for (const ia::Transfer& transfer : *stage) {
      const int64_t bytes = transfer.elements() * byte_size(type.relation.dtype);
      sent[transfer.from] += bytes;
      received[transfer.to] += bytes;
      out.bytes += bytes;
    }
    const int64_t busiest =
        std::max(*std::max_element(sent.begin(), sent.end()), *std::max_element(received.begin(), received.end()));
    out.seconds += cluster.latency_seconds + static_cast<double>(busiest) / cluster.bytes_per_second;
    for (size_t site = 0; site < received.size(); ++site)
      out.received[site] = std::max(out.received[site], received[site]);
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
    if (node.as<ia::Broadcast>() != nullptr || node.as<ia::Shuffle>() != nullptr) {
      const ia::Exchange exchange = ia::exchange(node.input(0)->type(), node.type());
      Traffic traffic = traffic_of(exchange, node.type(), cluster_);
      cost.paper_floats = paper_floats(node);
      cost.wire_bytes = traffic.bytes;
      cost.flops = busiest_flops(exchange, node.type().sites());
      cost.seconds = traffic.seconds;
      received_.emplace(&node, std::move(traffic.received));
    } else {
      const bool fused = !node.inputs().empty() && fused_.contains(node.input(0).get());
      cost.flops = busiest_flops(node, fused);
    }
    cost.seconds += static_cast<double>(cost.flops) / cluster_.flops_per_second;
    return cost;
  }

  const ReceivedBytes& received() const { return received_; }

 private:
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

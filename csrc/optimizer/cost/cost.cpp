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

NodeCost priced(const ia::Node& node, bool fused, const Cluster& cluster, ReceivedBytes* received) {
  NodeCost cost;
  if (node.as<ia::Broadcast>() != nullptr || node.as<ia::Shuffle>() != nullptr) {
    const ia::Exchange exchange = ia::exchange(node.input(0)->type(), node.type());
    Traffic traffic = traffic_of(exchange, node.type(), cluster);
    cost.paper_floats = paper_floats(node);
    cost.wire_bytes = traffic.bytes;
    cost.flops = busiest_flops(exchange, node.type().sites());
    cost.seconds = traffic.seconds;
    if (received != nullptr) received->emplace(&node, std::move(traffic.received));
  } else {
    cost.flops = busiest_flops(node, fused);
  }
  cost.seconds += static_cast<double>(cost.flops) / cluster.flops_per_second;
  return cost;
}

}  // namespace

double paper_floats(const ia::Node& node) {
  const auto* broadcast = node.as<ia::Broadcast>();
  const auto* shuffle = node.as<ia::Shuffle>();
  if (broadcast == nullptr && shuffle == nullptr) return 0;
  const RelationType& relation = node.type().relation;
  const auto floats = static_cast<double>(relation.elements_over(Box::below(relation.frontier)));
  const Dims axes = broadcast != nullptr ? broadcast->axes : ia::Placement(shuffle->target).axes_in<ia::Replicated>();
  return floats * static_cast<double>(checked_product("cost", project(node.type().grid.axes, axes)));
}

NodeCost node_cost(const ia::Node& node, bool fused, const Cluster& cluster) {
  return priced(node, fused, cluster, nullptr);
}

PlanCost cost(const ia::Plan& plan, const Cluster& cluster) {
  const auto fused = ia::fused_joins(plan);
  const auto names = ia::node_names(plan);
  ReceivedBytes received;
  PlanCost out;
  out.cluster = cluster;
  for (const ia::NodePtr& node : plan.order()) {
    const bool fuses = !node->inputs().empty() && fused.contains(node->input(0).get());
    NodeCost cost = priced(*node, fuses, cluster, &received);
    cost.node = names.at(node.get());
    cost.operation = ia::operation_text(node->operation(), node->type());
    out.paper_floats += cost.paper_floats;
    out.wire_bytes += cost.wire_bytes;
    out.flops += cost.flops;
    out.seconds += cost.seconds;
    out.nodes.push_back(std::move(cost));
  }
  out.peak_bytes = peak_bytes(plan, received, cluster.memory_bytes);
  return out;
}

}  // namespace joinsum::optimizer

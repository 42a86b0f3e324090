#include "optimizer/placement/pricing.h"

#include "ia/exchange.h"
#include "ia/fusion.h"
#include "optimizer/cost/move_seconds.h"

namespace joinsum::optimizer {
namespace {

bool moves(const ia::Node& node) { return node.as<ia::Broadcast>() != nullptr || node.as<ia::Shuffle>() != nullptr; }

NodePrice in_closed_form(const ia::Node& move, const Cluster& cluster) {
  const ia::PhysicalType& source = move.input(0)->type();
  const ia::Volume volume = ia::volume(source, move.type());
  return {volume.elements() * byte_size(source.relation.dtype), link_seconds(volume, source, move.type(), cluster)};
}

}  // namespace

PlanPrices::PlanPrices(const ia::Plan& plan, const Cluster& cluster) {
  const Fusions fusions(plan);
  const bool listed = plan.grid().sites() <= kMostSitesListed;
  if (cluster.profile && plan.grid().sites() > 1) seconds_ = cluster.profile->run_seconds;
  for (const ia::NodePtr& node : plan.order()) {
    NodePrice& price = prices_[node.get()];
    if (!listed && moves(*node)) {
      price = in_closed_form(*node, cluster);
    } else {
      const NodeCost cost = node_cost(*node, fusions.of(*node), cluster, &received_);
      price = {cost.wire_bytes, cost.seconds};
    }
    wire_bytes_ += price.wire_bytes;
    seconds_ += price.seconds;
  }
}

}  // namespace joinsum::optimizer

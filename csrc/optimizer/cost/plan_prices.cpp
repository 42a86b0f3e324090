#include "optimizer/cost/plan_prices.h"

#include "ia/exchange.h"
#include "ia/materialization.h"
#include "optimizer/cost/move_seconds.h"

namespace joinsum::optimizer::cost {
namespace {

Figures in_closed_form(const ia::Node& move, const Cluster& cluster) {
  const ia::PhysicalType& source = move.input(0)->type();
  const ia::Volume volume = ia::volume(source, move.type());
  return {paper_floats(move), volume.elements() * byte_size(source.relation.dtype),
          link_seconds(volume, source, move.type(), cluster)};
}

}  // namespace

PlanPrices::PlanPrices(const ia::Plan& plan, const Cluster& cluster) {
  const Fusions fusions(plan);
  const bool listed = plan.grid().sites() <= kMostSitesListed;
  if (cluster.profile && plan.grid().sites() > 1) total_.seconds = cluster.profile->run_seconds;
  for (const ia::NodePtr& node : plan.order()) {
    Figures& price = prices_[node.get()];
    if (!listed && ia::is_move(node->operation())) {
      price = in_closed_form(*node, cluster);
    } else {
      const NodeCost cost = node_cost(*node, fusions.of(*node), cluster, &received_);
      price = {cost.paper_floats, cost.wire_bytes, cost.seconds};
    }
    total_.paper_floats += price.paper_floats;
    total_.wire_bytes += price.wire_bytes;
    total_.seconds += price.seconds;
  }
}

}  // namespace joinsum::optimizer::cost

#include "optimizer/rules/score.h"

#include <algorithm>
#include <limits>

#include "ia/analysis/materialization.h"
#include "kernels/table/table.h"
#include "optimizer/division/divisions.h"

namespace joinsum::optimizer::rules {
namespace {

bool fits(const ia::Plan& plan, const cost::Cluster& cluster) {
  try {
    cost::plan_cost(plan, cluster);
    return true;
  } catch (const PlanError&) {
    return false;
  }
}

/// Joins that an aggregation reads, straight or through moves, and nothing else does.
std::unordered_set<const ia::Node*> aggregated_joins(const ia::Plan& plan) {
  const auto uses = use_counts(plan);
  std::unordered_set<const ia::Node*> out;
  for (const ia::NodePtr& node : plan.order()) {
    const auto* aggregate = node->as<ia::LocalAggregate>();
    if (aggregate == nullptr || !kernels::table::reduces_in_any_order(aggregate->kernel.first())) continue;
    const ia::Node* below = node->input(0).get();
    while (ia::is_move(below->operation())) {
      if (uses.at(below) > 1) break;
      below = below->input(0).get();
    }
    if (below->as<ia::LocalJoin>() != nullptr && uses.at(below) == 1) out.insert(below);
  }
  return out;
}

}  // namespace

int64_t undivided_contractions(const ia::Plan& plan) {
  const auto aggregated = aggregated_joins(plan);
  int64_t count = 0;
  for (const ia::NodePtr& node : plan.order()) {
    const auto* join = node->as<ia::LocalJoin>();
    if (join == nullptr) continue;
    const bool contracts = aggregated.contains(node.get()) || kernels::table::contracts(join->kernel);
    if (contracts && division::leaves_undivided(node->type())) ++count;
  }
  return count;
}

const cost::NodeCost& Pricer::price(const ia::NodePtr& node, cost::Fusion fusion) {
  const auto [at, fresh] = prices_[static_cast<size_t>(fusion)].try_emplace(node.get());
  if (!fresh) return at->second;
  if (!ia::is_move(node->operation()) || node->input(0)->type().placement.grid() == nullptr)
    return at->second = cost::node_cost(*node, fusion, cluster_);
  const ia::PhysicalType& from = node->input(0)->type();
  const ia::PhysicalType& to = node->type();
  const bool pending = from.placement.pending();
  std::vector<Move>& known = moves_[ia::operation_hash(node->operation())];
  auto same = std::find_if(known.begin(), known.end(), [&](const Move& other) {
    // What holds partials shows in no placement.
    const bool held = !pending || (other.from.holding == from.holding && other.to.holding == to.holding);
    return other.from == from && other.to == to && held;
  });
  if (same == known.end()) same = known.insert(same, {from, to, cost::node_cost(*node, fusion, cluster_)});
  return at->second = same->price;
}

Score Pricer::score(const ia::Plan& plan) {
  Score out;
  const cost::Fusions fusions(plan);
  for (const ia::NodePtr& node : plan.order()) {
    const cost::NodeCost& cost = price(node, fusions.of(*node));
    out.value += cost::value_of(cost, objective_);
    out.flops += static_cast<double>(cost.flops);
    out.operators += node->inputs().empty() ? 0 : 1;
  }
  if (!cost::row_of(objective_).prices_work) out.undivided = static_cast<double>(undivided_contractions(plan));
  if (cluster_.memory_bytes && !fits(plan, cluster_)) out.value = std::numeric_limits<double>::infinity();
  return out;
}

}  // namespace joinsum::optimizer::rules

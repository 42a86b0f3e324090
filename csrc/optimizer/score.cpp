#include "optimizer/score.h"

#include <limits>

#include "ia/fusion.h"

namespace joinsum::optimizer {
namespace {

constexpr const char* kNames[] = {"paper_floats", "wire_bytes", "seconds"};

template <class Cost>
double chosen(const Cost& cost, Objective objective) {
  switch (objective) {
    case Objective::kPaperFloats:
      return cost.paper_floats;
    case Objective::kWireBytes:
      return static_cast<double>(cost.wire_bytes);
    case Objective::kSeconds:
      return cost.seconds;
  }
  return 0;
}

bool fits(const ia::Plan& plan, const Cluster& cluster) {
  try {
    cost(plan, cluster);
    return true;
  } catch (const PlanError&) {
    return false;
  }
}

}  // namespace

Objective objective_named(const std::string& name) {
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (name == kNames[i]) return static_cast<Objective>(i);
  }
  throw PlanError(concatenate("optimize: no such cost: minimize=", name,
                              ", costs=", std::vector<std::string>(std::begin(kNames), std::end(kNames))));
}

std::string name_of(Objective objective) { return kNames[static_cast<size_t>(objective)]; }

double value_of(const NodeCost& cost, Objective objective) { return chosen(cost, objective); }
double value_of(const PlanCost& cost, Objective objective) { return chosen(cost, objective); }

const Pricer::Price& Pricer::price(const ia::NodePtr& node, Fusion fusion) {
  const auto [at, fresh] = prices_[static_cast<size_t>(fusion)].try_emplace(node.get());
  if (fresh) {
    const NodeCost cost = node_cost(*node, fusion, cluster_);
    at->second = {value_of(cost, objective_), static_cast<double>(cost.flops)};
  }
  return at->second;
}

Score Pricer::score(const ia::Plan& plan) {
  Score out;
  const auto fused = ia::fused_joins(plan);
  for (const ia::NodePtr& node : plan.order()) {
    const Price& priced = price(node, fusion_of(*node, fused));
    out.value += priced.value;
    out.flops += priced.flops;
    out.operators += node->inputs().empty() ? 0 : 1;
  }
  if (cluster_.memory_bytes && !fits(plan, cluster_)) out.value = std::numeric_limits<double>::infinity();
  return out;
}

}  // namespace joinsum::optimizer

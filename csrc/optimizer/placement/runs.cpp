#include "optimizer/placement/runs.h"

#include <algorithm>

#include "ia/fusion.h"
#include "optimizer/placement/candidates.h"
#include "tra/lower.h"

namespace joinsum::optimizer {

size_t Runs::number(const tra::Node& node, const tra::Node* join) {
  Operator op{tra::local_operation(join != nullptr ? *join : node), std::nullopt};
  if (join != nullptr) op.sum = tra::local_operation(node);
  const auto known = std::find(operators_.begin(), operators_.end(), op);
  const auto number = static_cast<size_t>(known - operators_.begin());
  if (known == operators_.end()) operators_.push_back(std::move(op));
  return number;
}

const Run& Runs::of(size_t operation, const std::vector<const Place*>& operands) {
  const auto [at, fresh] = runs_.try_emplace({operation, operands});
  if (!fresh) return at->second;
  try {
    at->second = computed(operators_[operation], operands);
  } catch (const PlanError&) {
  } catch (const KernelError&) {
  }
  return at->second;
}

void Runs::price(Run& run, const ia::NodePtr& node, Fusion fusion) const {
  const NodeCost cost = node_cost(*node, fusion, cluster_);
  run.value += value_of(cost, objective_);
  run.flops += static_cast<double>(cost.flops);
}

Run Runs::computed(const Operator& op, const std::vector<const Place*>& operands) {
  Run out;
  std::vector<ia::NodePtr> inputs;
  for (const Place* operand : operands)
    inputs.push_back(ia::make_input("x" + std::to_string(inputs.size()), operand->type));
  ia::NodePtr node = ia::make(op.operation, std::move(inputs));
  if (std::holds_alternative<ia::LocalJoin>(op.operation)) {
    out.undivided = leaves_undivided(node->type());
    out.split = split_of(node->type().placement);
  }
  if (op.sum) {
    const ia::NodePtr join = node;
    node = ia::make(*op.sum, {join});
    const auto fused = ia::fused_joins(ia::Plan::make({{"Z", node, std::nullopt}}));
    price(out, join, fusion_of(*join, fused));
    price(out, node, fusion_of(*node, fused));
  } else {
    price(out, node, Fusion::kNone);
  }
  out.result = places_.of(node->type());
  return out;
}

}  // namespace joinsum::optimizer

#include "optimizer/layouts/operator_costs.h"

#include <algorithm>

#include "ia/analysis/materialization.h"
#include "optimizer/division/divisions.h"
#include "tra/lower.h"

namespace joinsum::optimizer::layouts {

size_t OperatorCosts::number(const tra::Node& node, const tra::Node* join) {
  Operator op{tra::local_operation(join != nullptr ? *join : node), std::nullopt};
  if (join != nullptr) op.sum = tra::local_operation(node);
  const uint64_t hash = hash_mix(ia::operation_hash(op.operation), op.sum ? ia::operation_hash(*op.sum) : 0);
  std::vector<size_t>& numbers = by_hash_[hash];
  const auto known = std::find_if(numbers.begin(), numbers.end(), [&](size_t each) { return operators_[each] == op; });
  if (known != numbers.end()) return *known;
  numbers.push_back(operators_.size());
  operators_.push_back(std::move(op));
  return numbers.back();
}

const OperatorCost& OperatorCosts::of(size_t operation, const std::vector<const Layout*>& operands) {
  const auto [at, fresh] = operator_costs_.try_emplace({operation, operands});
  if (!fresh) return at->second;
  try {
    at->second = computed(operators_[operation], operands);
  } catch (const PlanError&) {
  } catch (const KernelError&) {
  }
  return at->second;
}

OperatorCost OperatorCosts::computed(const Operator& op, const std::vector<const Layout*>& operands) {
  OperatorCost out;
  std::vector<ia::NodePtr> inputs;
  for (const Layout* operand : operands)
    inputs.push_back(ia::make_input("x" + std::to_string(inputs.size()), operand->type));
  ia::NodePtr node = ia::make(op.operation, std::move(inputs));
  if (std::holds_alternative<ia::LocalJoin>(op.operation)) {
    out.undivided = division::leaves_undivided(node->type());
    out.split = division::split_of(node->type().placement);
  }
  if (op.sum) node = ia::make(*op.sum, {node});
  const cost::NodeCost cost = cost::total_cost(ia::Plan::make({{"Z", node, std::nullopt}}), cluster_);
  out.value = cost::value_of(cost, objective_);
  out.flops = static_cast<double>(cost.flops);
  out.result = layouts_.of(node->type());
  return out;
}

}  // namespace joinsum::optimizer::layouts

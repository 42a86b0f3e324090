#include "ia/fusion.h"

#include "kernels/table.h"

namespace joinsum::ia {

std::unordered_map<const Node*, int64_t> use_counts(const Plan& plan) {
  std::unordered_map<const Node*, int64_t> counts;
  for (const NodePtr& node : plan.order()) {
    for (const NodePtr& input : node->inputs()) ++counts[input.get()];
  }
  for (const auto& output : plan.outputs()) ++counts[output.node.get()];
  return counts;
}

std::unordered_set<const Node*> fused_joins(const Plan& plan) {
  const auto counts = use_counts(plan);
  std::unordered_set<const Node*> fused;
  for (const NodePtr& node : plan.order()) {
    const auto* aggregate = node->as<LocalAggregate>();
    if (aggregate == nullptr) continue;
    const Node* join = node->input(0).get();
    const auto* op = join->as<LocalJoin>();
    if (op == nullptr || counts.at(join) > 1) continue;
    const kernels::Row& row = kernels::row_of(op->kernel);
    const bool contraction = row.form == kernels::Form::kLabelled && !row.user && op->kernel.then.empty();
    const bool folds = contraction && !row.fold.empty() && aggregate->kernel.first() == Kernel{row.fold, {}};
    if (folds) fused.insert(join);
  }
  return fused;
}

}  // namespace joinsum::ia

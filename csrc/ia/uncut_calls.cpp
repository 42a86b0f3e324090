#include "ia/uncut_calls.h"

#include <algorithm>
#include <unordered_map>

namespace joinsum::ia {
namespace {

/// Whether some grid axis divides a relation along the key dimension `dim`.
bool divided(const PhysicalType& type, int64_t dim) {
  const GridPlacement& placement = *type.placement.grid();
  return std::any_of(placement.states.begin(), placement.states.end(), [&](const AxisState& state) {
    const auto* split = std::get_if<Split>(&state);
    return split != nullptr && split->dim == dim;
  });
}

/// Whether `once` may run on these operands: none is divided along a letter that it needs whole.
bool possible(const kernels::Call& once, const std::vector<NodePtr>& operands) {
  for (size_t i = 0; i < operands.size(); ++i) {
    for (const char letter : once.operands[i]) {
      if (once.whole.find(letter) == std::string::npos) continue;
      const auto dim = kernels::key_of(once.operands[i], operands[i]->type().relation, letter);
      if (dim && divided(operands[i]->type(), *dim)) return false;
    }
  }
  return true;
}

/// What has the result of `node` at once; null where it is no call, or needs its parts.
NodePtr at_once(const Node& node, const std::vector<NodePtr>& inputs) {
  const auto* op = node.as<LocalCall>();
  if (op == nullptr || op->call.uncut.empty()) return nullptr;
  const kernels::Call& once = op->call.uncut.front();
  std::vector<NodePtr> operands;
  for (const int64_t operand : op->call.uncut_operands) operands.push_back(inputs[operand]);
  if (!possible(once, operands)) return nullptr;
  NodePtr made = make(LocalCall{once}, std::move(operands));
  JOINSUM_CHECK(made->type() == node.type(), "uncut: a call at once has another type: call=", once.text(),
                ", type=", made->type().text(), ", expected=", node.type().text());
  return made;
}

}  // namespace

Plan with_uncut_calls(const Plan& plan) {
  std::unordered_map<const Node*, NodePtr> made;
  for (const NodePtr& node : plan.order()) {
    std::vector<NodePtr> inputs;
    for (const NodePtr& input : node->inputs()) inputs.push_back(made.at(input.get()));
    NodePtr& now = made[node.get()];
    now = at_once(*node, inputs);
    if (now == nullptr) now = inputs == node->inputs() ? node : make(node->operation(), std::move(inputs));
  }
  std::vector<Plan::Output> outputs = plan.outputs();
  for (auto& output : outputs) output.node = made.at(output.node.get());
  return Plan::make(std::move(outputs));
}

}  // namespace joinsum::ia

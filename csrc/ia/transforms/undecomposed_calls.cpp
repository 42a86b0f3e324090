#include "ia/transforms/undecomposed_calls.h"

#include <algorithm>
#include <unordered_map>

#include "relation/call_typing.h"

namespace joinsum::ia::transforms {
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
bool possible(const kernels::call::Call& once, const std::vector<NodePtr>& operands) {
  for (size_t i = 0; i < operands.size(); ++i) {
    for (const char letter : once.operands[i]) {
      if (once.whole.find(letter) == std::string::npos) continue;
      const auto dim = relation::key_of(once.operands[i], operands[i]->type().relation, letter);
      if (dim && divided(operands[i]->type(), *dim)) return false;
    }
  }
  return true;
}

/// What has the result of `node` at once; null where it is no call, or needs its parts.
NodePtr composite_call(const Node& node, const std::vector<NodePtr>& inputs) {
  const auto* op = node.as<LocalCall>();
  if (op == nullptr || op->call.undecomposed.empty()) return nullptr;
  const kernels::call::Call& once = op->call.undecomposed.front();
  std::vector<NodePtr> operands;
  for (const int64_t operand : op->call.undecomposed_operands) operands.push_back(inputs[operand]);
  if (!possible(once, operands)) return nullptr;
  NodePtr made = make(LocalCall{once}, std::move(operands));
  JOINSUM_CHECK(made->type() == node.type(), "undecomposed: a call at once has another type: call=", once.text(),
                ", type=", made->type().text(), ", expected=", node.type().text());
  return made;
}

}  // namespace

Plan with_undecomposed_calls(const Plan& plan) {
  Counterparts<Node, Plan> composite;
  return translated<Plan>(plan, composite, [](const NodePtr& node, std::vector<NodePtr> inputs) {
    if (NodePtr call = composite_call(*node, inputs)) return call;
    return inputs == node->inputs() ? node : make(node->operation(), std::move(inputs));
  });
}

}  // namespace joinsum::ia::transforms

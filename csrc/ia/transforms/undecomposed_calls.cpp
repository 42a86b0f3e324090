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

/// Whether `call` may run on these operands: none is divided along a letter that it needs undivided.
bool possible(const kernels::call::Call& call, const std::vector<NodePtr>& operands) {
  for (size_t i = 0; i < operands.size(); ++i) {
    for (const char letter : call.operands[i]) {
      if (call.undivided.find(letter) == std::string::npos) continue;
      const auto dim = relation::key_of(call.operands[i], operands[i]->type().relation, letter);
      if (dim && divided(operands[i]->type(), *dim)) return false;
    }
  }
  return true;
}

/// The undecomposed call with the result of `node`; null where there is none, or an operand is divided.
NodePtr undecomposed_call(const Node& node, const std::vector<NodePtr>& inputs) {
  const auto* op = node.as<LocalCall>();
  if (op == nullptr || op->call.undecomposed.empty()) return nullptr;
  const kernels::call::Call& call = op->call.undecomposed.front();
  std::vector<NodePtr> operands;
  for (const int64_t operand : op->call.undecomposed_operands) operands.push_back(inputs[operand]);
  if (!possible(call, operands)) return nullptr;
  NodePtr made = make(LocalCall{call}, std::move(operands));
  JOINSUM_CHECK(made->type() == node.type(), "undecomposed: a call has another type: call=", call.text(),
                ", type=", made->type().text(), ", expected=", node.type().text());
  return made;
}

}  // namespace

Plan with_undecomposed_calls(const Plan& plan) {
  Counterparts<Node, Plan> undecomposed;
  return translated<Plan>(plan, undecomposed, [](const NodePtr& node, std::vector<NodePtr> inputs) {
    if (NodePtr call = undecomposed_call(*node, inputs)) return call;
    return inputs == node->inputs() ? node : make(node->operation(), std::move(inputs));
  });
}

}  // namespace joinsum::ia::transforms

#include "einsum/transforms/undecomposed_calls.h"

namespace joinsum::einsum::transforms {

Plan with_undecomposed_calls(const Plan& plan) {
  Counterparts<Node, Plan> undecomposed;
  return translated<Plan>(plan, undecomposed, [](const NodePtr& node, std::vector<NodePtr> inputs) {
    const auto* call = node->as<Call>();
    if (call == nullptr || call->undecomposed.empty()) {
      return inputs == node->inputs() ? node : make(node->operation(), std::move(inputs));
    }
    std::vector<NodePtr> operands;
    for (const int64_t operand : call->undecomposed_operands) operands.push_back(inputs[operand]);
    return make(call->undecomposed.front(), std::move(operands));
  });
}

}  // namespace joinsum::einsum::transforms

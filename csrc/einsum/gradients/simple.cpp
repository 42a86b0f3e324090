#include "einsum/gradients/simple.h"

#include "einsum/gradients/labelled.h"
#include "kernels/table/table.h"

namespace joinsum::einsum::gradients {
namespace {

void keep_whole(const NodePtr& aggregation, Einsum op, std::vector<NodePtr> inputs, WholeAggregations& aggregations) {
  const std::string contraction = kernels::table::contraction_name(op.join.name, op.aggregate.name);
  if (is_half_float(aggregation->type().dtype) || !kernels::table::has_row(contraction)) return;
  aggregations[aggregation.get()] = make(std::move(op), std::move(inputs));
}

NodePtr simple_vertex(const Einsum& op, const std::vector<NodePtr>& inputs, WholeAggregations& aggregations) {
  std::vector<Labelled> operands;
  for (size_t i = 0; i < inputs.size(); ++i) {
    operands.push_back(einsum({inputs[i], op.operands[i]}, labels_of({op.operands[i]}), {}));
  }
  const Extents extents = extents_of(op, types_of<Node>(inputs));
  const Labels all = labels_of(op.operands);
  const Labels kept = common(labels_of({op.result}), all);
  const bool sums = op.aggregate == kAdd || kept.size() == all.size();
  Labelled value;
  if (operands.size() == 2 && op.join.epilogue.empty() && sums) {
    value = einsum(operands[0], operands[1], kept, extents, op.join);
  } else {
    Labels order = kept;
    const Labels gone = without(all, kept);
    order.insert(order.end(), gone.begin(), gone.end());
    value = operands.size() == 2 ? einsum(operands[0], operands[1], order, extents, op.join.first())
                                 : mapped(operands[0], op.join.first());
    for (const Kernel& next : op.join.epilogue) value = mapped(value, next);
    value = einsum(value, kept, extents, kId, op.aggregate);
    if (operands.size() == 2 && op.join.epilogue.empty()) {
      keep_whole(value.node, {{operands[0].labels, operands[1].labels}, kept, op.join, op.aggregate, {}},
                 {operands[0].node, operands[1].node}, aggregations);
    }
  }
  return einsum(value, op.result, extents).node;
}

}  // namespace

Plan simple(const Plan& plan, std::unordered_map<const Node*, NodePtr>& made, WholeAggregations& aggregations) {
  std::vector<Plan::Output> outputs = plan.outputs();
  for (auto& output : outputs) output.tied_input.reset();
  return translated<Plan>(Plan::make(std::move(outputs)), made, [&](const NodePtr& node, const auto& inputs) {
    const auto* call = node->as<Call>();
    JOINSUM_USER_CHECK(call == nullptr, "gradient: a call of a torch operator has no gradient here; torch's autograd ",
                       "gives it before the graph is made: call=", call == nullptr ? "" : call->text());
    const auto* op = node->as<Einsum>();
    return op == nullptr ? node : simple_vertex(*op, inputs, aggregations);
  });
}

}  // namespace joinsum::einsum::gradients

#include "einsum/simple.h"

#include "einsum/labelled.h"
#include "kernels/expression.h"
#include "kernels/table.h"

namespace joinsum::einsum {
namespace {

void keep_whole(const NodePtr& fold, Einsum op, std::vector<NodePtr> inputs, WholeFolds& folds) {
  const DType dtype = fold->type().dtype;
  const bool narrow = dtype == DType::kFloat16 || dtype == DType::kBFloat16;
  const std::string join = kernels::is_expression(op.join) ? op.join.name : "contract_" + op.join.name;
  if (narrow || !kernels::has_row(join + "_" + op.aggregate.name)) return;
  folds[fold.get()] = make(std::move(op), std::move(inputs));
}

NodePtr simple_vertex(const Einsum& op, const std::vector<NodePtr>& inputs, WholeFolds& folds) {
  std::vector<Labelled> operands;
  for (size_t i = 0; i < inputs.size(); ++i) {
    operands.push_back(einsum({inputs[i], op.operands[i]}, labels_of({op.operands[i]}), {}));
  }
  const Extents extents = extents_of(op, types_of<Node>(inputs));
  const Labels all = labels_of(op.operands);
  const Labels kept = common(labels_of({op.result}), all);
  const bool sums = op.aggregate == kAdd || kept.size() == all.size();
  Labelled value;
  if (operands.size() == 2 && op.join.then.empty() && sums) {
    value = einsum(operands[0], operands[1], kept, extents, op.join);
  } else {
    Labels order = kept;
    const Labels gone = without(all, kept);
    order.insert(order.end(), gone.begin(), gone.end());
    value = operands.size() == 2 ? einsum(operands[0], operands[1], order, extents, op.join.first())
                                 : mapped(operands[0], op.join.first());
    for (const Kernel& next : op.join.then) value = mapped(value, next);
    value = einsum(value, kept, extents, kId, op.aggregate);
    if (operands.size() == 2 && op.join.then.empty()) {
      keep_whole(value.node, {{operands[0].labels, operands[1].labels}, kept, op.join, op.aggregate, {}},
                 {operands[0].node, operands[1].node}, folds);
    }
  }
  return einsum(value, op.result, extents).node;
}

}  // namespace

Plan simple(const Plan& plan, std::unordered_map<const Node*, NodePtr>& made, WholeFolds& folds) {
  for (const NodePtr& node : plan.order()) {
    std::vector<NodePtr> inputs;
    for (const NodePtr& input : node->inputs()) inputs.push_back(made.at(input.get()));
    const auto* call = node->as<Call>();
    JOINSUM_USER_CHECK(call == nullptr, "gradient: a call of a torch operator has no gradient here; torch's autograd ",
                       "gives it before the graph is made: call=", call == nullptr ? "" : call->text());
    const auto* op = node->as<Einsum>();
    made[node.get()] = op == nullptr ? node : simple_vertex(*op, inputs, folds);
  }
  std::vector<Plan::Output> outputs;
  for (const auto& output : plan.outputs()) outputs.push_back({output.name, made.at(output.node.get()), std::nullopt});
  return Plan::make(std::move(outputs));
}

}  // namespace joinsum::einsum

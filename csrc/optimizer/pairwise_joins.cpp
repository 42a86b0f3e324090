#include "optimizer/pairwise_joins.h"

#include <algorithm>

#include "einsum/lower.h"
#include "ia/analysis/materialization.h"
#include "tra/lower.h"

namespace joinsum::optimizer {

PairwiseJoins::PairwiseJoins(const einsum::Einsum& op, const std::vector<einsum::TensorType>& operands,
                             const OrderFor& wanted)
    : op_(op),
      wanted_(wanted),
      layouts_(wanted.grid),
      prices_(wanted.objective, wanted.cluster),
      extents_(einsum::extents_of(op, operands)),
      labels_(einsum::labels_of(op.operands)) {}

std::vector<Division> PairwiseJoins::divisions_of(const einsum::Labels& labels) const {
  std::vector<division::Divisible> dims;
  Dims numbers;
  for (const std::string& label : labels) {
    if (parts_of(label) == 1) continue;
    numbers.push_back(einsum::axis_of(labels_, label));
    dims.push_back({parts_of(label), numbers.back()});
  }
  std::vector<Division> out = division::divisions(wanted_.grid, dims, !cost::row_of(wanted_.objective).prices_work);
  for (Division& division : out) {
    for (int64_t& dim : division) dim = dim == division::kNothing ? division::kNothing : numbers[dim];
  }
  return out;
}

Division PairwiseJoins::projected(Division division, const einsum::Labels& labels, int64_t missing) const {
  for (int64_t& label : division) {
    if (label != division::kNothing && !einsum::has(labels, labels_[label])) label = missing;
  }
  return division;
}

JoinProgram PairwiseJoins::program_of(const LabelledTensor& left, const LabelledTensor& right,
                                      const einsum::Labels& result, bool last) const {
  einsum::Einsum op{{left.labels, right.labels},
                    result,
                    last ? op_.join : op_.join.first(),
                    op_.aggregate,
                    last ? op_.extents : einsum::Extents{}};
  const auto node = einsum::make(op, {einsum::make_input("L", left.type), einsum::make_input("R", right.type)});
  JoinProgram out{{}, {result, node->type()}, {relation_of(left), relation_of(right)}};
  out.plan =
      einsum::lower(einsum::Plan::make({{"Z", node, std::nullopt}}), {{"L", out.operands[0]}, {"R", out.operands[1]}});
  return out;
}

std::optional<PairwiseJoins::Run> PairwiseJoins::run(const JoinProgram& program, const LabelledTensor& left,
                                                     const LabelledTensor& right, const Division& division) {
  try {
    const layouts::Layout* operands[] = {placed(program.operands[0], projected(division, left.labels), left.labels),
                                         placed(program.operands[1], projected(division, right.labels), right.labels)};
    Counterparts<tra::Node, ia::Plan> local;
    const auto plan = translated<ia::Plan>(program.plan, local, [&](const tra::NodePtr& node, auto inputs) {
      const auto* input = node->as<tra::Input>();
      if (input != nullptr) return ia::make_input(input->name, operands[input->name == "L" ? 0 : 1]->type);
      return ia::make(tra::local_operation(*node), std::move(inputs));
    });
    const cost::NodeCost cost = cost::total_cost(plan, wanted_.cluster);
    return Run{layouts_.of(plan.outputs()[0].node->type()),
               {cost::value_of(cost, wanted_.objective), static_cast<double>(cost.flops)}};
  } catch (const PlanError&) {
  } catch (const KernelError&) {
  }
  return std::nullopt;
}

const layouts::Layout* PairwiseJoins::placed(const relation::RelationType& relation, const Division& division,
                                             const einsum::Labels& labels) {
  Dims split = division;
  for (int64_t& label : split) {
    if (label != division::kNothing) label = relation.axes[einsum::axis_of(labels, labels_[label])].key_dim;
  }
  return layouts_.placed(layouts_.number(relation), division::placement_of(split, relation.frontier));
}

double PairwiseJoins::price_of_result(const layouts::Layout& from) {
  if (wanted_.everywhere) return prices_(from, *layouts_.replicated(from.relation));
  if (!from.type.placement.pending()) return 0;
  const relation::RelationType& relation = from.type.relation;
  std::vector<division::Divisible> dims;
  for (int64_t d = 0; d < relation.arity(); ++d) dims.push_back({relation.frontier[d], d});
  double least = min_sum::kForbidden;
  for (const Dims& division : division::divisions(wanted_.grid, dims, false)) {
    const ia::Placement target = division::placement_of(division, relation.frontier);
    least = std::min(least, prices_(from, *layouts_.placed(from.relation, target)));
  }
  return least;
}

/// The parts of a label; one if a tensor has it twice.
int64_t PairwiseJoins::parts_of(const std::string& label) const {
  const auto twice = [&](const einsum::Labels& labels) { return std::count(labels.begin(), labels.end(), label) > 1; };
  if (twice(op_.result) || std::any_of(op_.operands.begin(), op_.operands.end(), twice)) return 1;
  return std::max<int64_t>(1, std::min(wanted_.grid.sites(), extents_.at(label)));
}

relation::RelationType PairwiseJoins::relation_of(const LabelledTensor& tensor) const {
  Dims parts;
  for (const std::string& label : tensor.labels) parts.push_back(parts_of(label));
  return einsum::cut_evenly("contraction_order", tensor.type, parts);
}

}  // namespace joinsum::optimizer

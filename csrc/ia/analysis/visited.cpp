#include "ia/analysis/visited.h"

#include <algorithm>
#include <map>

namespace joinsum::ia::analysis {
namespace {

/// An operand of a labelled kernel, with the key dimension that each of its own becomes.
struct Operand {
  const relation::RelationType& type;
  Dims position;
};

Visited points(kernels::table::Subscripts labels, const relation::RelationType& calls,
               const std::vector<Operand>& operands) {
  std::map<char, relation::Axis> letters;
  for (size_t i = 0; i < operands.size(); ++i) {
    for (size_t a = 0; a < operands[i].type.axes.size(); ++a) {
      relation::Axis axis = operands[i].type.axes[a];
      if (axis.linked()) axis.key_dim = operands[i].position[axis.key_dim];
      const auto [at, fresh] = letters.try_emplace(labels.operands[i][a], axis);
      if (!fresh && !at->second.linked()) at->second = axis;
    }
  }
  Visited out{std::move(labels), {}, {calls.dtype, calls.frontier, {}, calls.keys}};
  for (auto& [letter, axis] : letters) {
    out.letters += letter;
    out.relation.axes.push_back(std::move(axis));
  }
  return out;
}

}  // namespace

relation::RelationType joined_type(const Node& join, const LocalJoin& op) {
  if (op.kernel.epilogue.empty()) return join.type().relation;
  return relation::join_type("local_join", join.input(0)->type().relation, join.input(1)->type().relation,
                             {op.left_keys, op.right_keys}, op.kernel.first());
}

relation::RelationType aggregated_type(const Node& node, const LocalAggregate& op) {
  if (op.kernel.epilogue.empty()) return node.type().relation;
  return relation::aggregate_type("local_aggregate", node.input(0)->type().relation, op.group_by, op.kernel.first());
}

Mapped mapped_by(const Node& node, const LocalMap& op) {
  const PhysicalType& input = node.input(0)->type();
  const bool one = op.outputs == 1;
  const relation::KeyMap keys = one ? relation::KeyMap::identity(input.relation.arity()) : op.key_map;
  return {one ? input.holding : node.type().holding,
          relation::map_type("local_map", input.relation, op.outputs, keys, op.array_map.first())};
}

Visited visited_by(const Node& join, const LocalJoin& op) {
  const relation::RelationType& left = join.input(0)->type().relation;
  const relation::RelationType& right = join.input(1)->type().relation;
  const relation::JoinKeys on{op.left_keys, op.right_keys};
  return points(kernels::table::row_of(op.kernel).labels(op.kernel), joined_type(join, op),
                {{left, on.left_position(left.arity())}, {right, on.right_position(left.arity(), right.arity())}});
}

Visited visited_by(const relation::RelationType& input, const kernels::table::Kernel& kernel) {
  return points(kernels::table::row_of(kernel).labels(kernel), input, {{input, all_dims(input.arity())}});
}

double visited_share(const Node& join) {
  double share = 1;
  const auto* call = join.as<LocalCall>();
  if (call != nullptr && kernels::call::counts_entries(call->call)) return share;
  for (const NodePtr& input : join.inputs()) share *= relation::density_of(input->type().relation);
  return std::min(share, 1.0);
}

Busiest busiest_of(const Holding& holding, const relation::RelationType& relation) {
  Busiest most;
  for (int64_t site = 0; site < holding.sites(); ++site) {
    const int64_t elements = holding.elements(relation, site);
    if (elements > most.elements) most = {site, elements};
  }
  return most;
}

std::map<char, double> extents_at(const Node& node, const kernels::call::Call& call, int64_t site) {
  std::map<char, double> out;
  const bool works = node.type().holding.box(site).has_value();
  for (const auto& [letter, fresh] : call.extents) out[letter] = works ? static_cast<double>(fresh.extent) : 0;
  for (size_t i = 0; i < call.operands.size(); ++i) {
    const PhysicalType& operand = node.input(i)->type();
    const auto& box = operand.holding.box(site);
    for (size_t a = 0; a < call.operands[i].size(); ++a) {
      const relation::Axis& axis = operand.relation.axes[a];
      out[call.operands[i][a]] = works && box ? static_cast<double>(axis.extent_over(*box)) : 0;
    }
  }
  return out;
}

}  // namespace joinsum::ia::analysis

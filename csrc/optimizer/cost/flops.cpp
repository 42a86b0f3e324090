#include "optimizer/cost/flops.h"

#include <algorithm>
#include <map>

#include "kernels/table.h"
#include "kernels/typing.h"

namespace joinsum::optimizer {
namespace {

using kernels::Form;
using kernels::Row;

/// An operand of a labelled kernel, with the key dimension that each of its own becomes.
struct Operand {
  const RelationType& type;
  Dims position;
};

/// The points that a labelled kernel visits, as a relation over the keys of `calls`: one axis per letter.
RelationType points(const kernels::Labels& labels, const RelationType& calls, const std::vector<Operand>& operands) {
  std::map<char, Axis> letters;
  for (size_t i = 0; i < operands.size(); ++i) {
    for (size_t a = 0; a < operands[i].type.axes.size(); ++a) {
      Axis axis = operands[i].type.axes[a];
      if (axis.linked()) axis.key_dim = operands[i].position[axis.key_dim];
      const auto [at, fresh] = letters.try_emplace(labels.operands[i][a], axis);
      if (!fresh && !at->second.linked()) at->second = axis;
    }
  }
  RelationType out{calls.dtype, calls.frontier, {}, calls.keys};
  for (auto& [letter, axis] : letters) out.axes.push_back(std::move(axis));
  return out;
}

int64_t most_elements(const ia::Holding& holding, const RelationType& relation) {
  int64_t most = 0;
  for (int64_t site = 0; site < holding.sites(); ++site) most = std::max(most, holding.elements(relation, site));
  return most;
}

int64_t join_flops(const ia::Node& node, const ia::LocalJoin& op) {
  const Row& row = kernels::row_of(op.kernel);
  const RelationType& joined = node.type().relation;
  if (row.form != Form::kLabelled) return row.flops_per_element * most_elements(node.type().holding, joined);
  const RelationType& left = node.input(0)->type().relation;
  const RelationType& right = node.input(1)->type().relation;
  const kernels::JoinKeys on{op.left_keys, op.right_keys};
  const RelationType visited =
      points(row.labels(op.kernel), joined,
             {{left, on.left_position(left.arity())}, {right, on.right_position(left.arity(), right.arity())}});
  return row.flops_per_element * most_elements(node.type().holding, visited);
}

int64_t map_flops(const ia::Node& node, const ia::LocalMap& op) {
  const Row& row = kernels::row_of(op.array_map);
  if (row.form != Form::kLabelled) {
    return row.flops_per_element * most_elements(node.type().holding, node.type().relation);
  }
  const ia::PhysicalType& input = node.input(0)->type();
  const RelationType visited =
      points(row.labels(op.array_map), input.relation, {{input.relation, all_dims(input.relation.arity())}});
  return row.flops_per_element * most_elements(input.holding, visited);
}

/// Folding n tuples into a group takes n - 1 calls. Arrays of one group have one shape.
int64_t aggregate_flops(const ia::Node& node, const ia::LocalAggregate& op) {
  const Row& row = kernels::row_of(op.kernel);
  if (row.flops_per_element == 0) return 0;
  const ia::PhysicalType& input = node.input(0)->type();
  const ia::PhysicalType& result = node.type();
  const auto shape = input.relation.uniform_shape();
  int64_t most = 0;
  for (int64_t site = 0; site < input.sites(); ++site) {
    if (row.form == Form::kElementwise || !shape) {
      const int64_t folded =
          input.holding.elements(input.relation, site) - result.holding.elements(result.relation, site);
      most = std::max(most, row.flops_per_element * folded);
    } else {
      const int64_t calls = input.holding.tuples(site) - result.holding.tuples(site);
      most = std::max(most, calls * kernels::flops(op.kernel, {*shape, *shape}));
    }
  }
  return most;
}

}  // namespace

int64_t busiest_flops(const ia::Node& node, bool fused) {
  if (const auto* join = node.as<ia::LocalJoin>()) return join_flops(node, *join);
  if (const auto* map = node.as<ia::LocalMap>()) return map_flops(node, *map);
  const auto* aggregate = node.as<ia::LocalAggregate>();
  return aggregate != nullptr && !fused ? aggregate_flops(node, *aggregate) : 0;
}

int64_t busiest_flops(const ia::Exchange& exchange, int64_t sites) {
  if (exchange.fold.empty()) return 0;
  std::vector<int64_t> folds(sites);
  for (const ia::Share& share : exchange.shares) {
    folds[share.site] += (static_cast<int64_t>(share.holders.size()) - 1) * (share.end - share.begin);
  }
  return kernels::row_of({exchange.fold, {}}).flops_per_element * *std::max_element(folds.begin(), folds.end());
}

}  // namespace joinsum::optimizer

#include "tra/lower.h"

#include <algorithm>
#include <unordered_map>

#include "relation/typing.h"

namespace joinsum::tra {
namespace {

/// Moves tuples that agree on `group_by` to one site; without group dimensions every site gets all tuples.
ia::NodePtr gather_groups(const ia::NodePtr& input, const Dims& group_by) {
  return group_by.empty() ? ia::broadcast(input) : ia::shuffle(input, group_by);
}

/// A key map that drops a split dimension leaves each tuple on its site: a scattered result, which must have no
/// replicas. So its input is split along every grid axis first.
ia::NodePtr prepare_for(const KeyMap& key_map, const ia::NodePtr& input) {
  const ia::Placement& placement = input->type().placement;
  if (placement.axes_in<ia::Replicated>().empty()) return input;
  const Dims copied = key_map.copied_dims();
  const Dims splits = placement.axes_in<ia::Split>();
  const bool kept = std::all_of(splits.begin(), splits.end(), [&](int64_t axis) {
    return position_of(copied, std::get<ia::Split>(placement.grid()->states[axis]).dim).has_value();
  });
  return kept ? input : ia::shuffle(input, all_dims(input->type().relation.arity()));
}

/// Placement of an upsert: that of its first operand, if each key of both has an owner under it.
ia::GridPlacement upsert_placement(const std::vector<ia::NodePtr>& operands, const RelationType& result) {
  const ia::PhysicalType& type = operands[0]->type();
  const ia::GridPlacement* target = type.placement.grid();
  const bool owned = target != nullptr && !type.placement.pending() &&
                     std::ranges::all_of(target->states, [&](const ia::AxisState& state) {
                       const auto* split = std::get_if<ia::Split>(&state);
                       return split == nullptr || split->domain >= result.frontier[split->dim];
                     });
  if (owned) return *target;
  if (result.arity() == 0) return *ia::Placement::replicated(type.grid).grid();
  return ia::fill(type.grid, all_dims(result.arity()), result.frontier);
}

struct Localize {
  const Node& node;

  const RelationType& input() const { return node.input(0)->type(); }

  ia::Operation operator()(const Input& op) const { return ia::Input{op.name}; }
  ia::Operation operator()(const Aggregate& op) const { return ia::LocalAggregate{op.group_by, op.kernel}; }
  ia::Operation operator()(const Join& op) const { return ia::LocalJoin{op.left_keys, op.right_keys, op.kernel}; }
  ia::Operation operator()(const Rekey& op) const { return ia::LocalMap{1, op.key_map, Kernel{"id", {}}}; }
  ia::Operation operator()(const Filter& op) const { return ia::LocalFilter{op.predicate}; }
  ia::Operation operator()(const Transform& op) const {
    return ia::LocalMap{1, KeyMap::identity(input().arity()), op.kernel};
  }
  ia::Operation operator()(const Tile& op) const {
    relation::TileMap map = relation::tile_map("tile", input(), op.axis, op.size);
    return ia::LocalMap{map.outputs, std::move(map.key_map), std::move(map.array_map)};
  }
  ia::Operation operator()(const Concat& op) const {
    return ia::LocalAggregate{complement({op.key_dim}, input().arity()), Kernel{"concat", {op.axis}}};
  }
  ia::Operation operator()(const Call& call) const { return ia::LocalCall{call}; }
  ia::Operation operator()(const Upsert&) const { return ia::LocalUpsert{}; }
};

struct Lower {
  const Node& node;
  const std::vector<ia::NodePtr>& inputs;
  const ia::Grid& grid;
  const std::map<std::string, ia::Placement>& placements;

  ia::NodePtr operator()(const Input& op) const {
    const RelationType& type = node.type();
    ia::Placement placement = ia::Placement::replicated(grid);
    if (const auto named = placements.find(op.name); named != placements.end()) {
      placement = named->second;
    } else if (type.arity() > 0) {
      placement = ia::fill(grid, all_dims(type.arity()), type.frontier);
    }
    return ia::make_input(op.name, ia::PhysicalType::placed("input " + op.name, type, grid, std::move(placement)));
  }
  /// Moves the tuples that the operator combines to one site first.
  template <class Op>
  ia::NodePtr operator()(const Op&) const {
    ia::Operation local = local_operation(node);
    if (std::holds_alternative<ia::LocalJoin>(local)) {
      return ia::make(std::move(local), {ia::broadcast(inputs[0]), inputs[1]});
    }
    if (std::holds_alternative<ia::LocalCall>(local)) {
      std::vector<ia::NodePtr> everywhere;
      for (const ia::NodePtr& input : inputs) everywhere.push_back(ia::broadcast(input));
      return ia::make(std::move(local), std::move(everywhere));
    }
    if (std::holds_alternative<ia::LocalUpsert>(local)) {
      const ia::GridPlacement target = upsert_placement(inputs, node.type());
      return ia::make(std::move(local), {ia::move_to(inputs[0], target), ia::move_to(inputs[1], target)});
    }
    ia::NodePtr input = inputs[0];
    if (const auto* aggregate = std::get_if<ia::LocalAggregate>(&local))
      input = gather_groups(input, aggregate->group_by);
    if (const auto* map = std::get_if<ia::LocalMap>(&local)) input = prepare_for(map->key_map, input);
    return ia::make(std::move(local), {std::move(input)});
  }
};

ia::NodePtr move_to(const ia::NodePtr& node, const ia::PhysicalType& target) {
  if (node->type() == target) return node;
  if (target.placement.fully_replicated()) return ia::broadcast(node);
  return ia::make(ia::Shuffle{*target.placement.grid()}, {node});
}

}  // namespace

ia::Operation local_operation(const Node& node) { return std::visit(Localize{node}, node.operation()); }

ia::Plan lower(const Plan& plan, const ia::Grid& grid, const std::map<std::string, ia::Placement>& placements,
               const std::map<std::string, ia::Placement>& output_placements) {
  std::unordered_map<const Node*, ia::NodePtr> lowered;
  std::map<std::string, ia::NodePtr> inputs;
  for (const NodePtr& node : plan.order()) {
    std::vector<ia::NodePtr> operands;
    for (const NodePtr& input : node->inputs()) operands.push_back(lowered.at(input.get()));
    const ia::NodePtr made = std::visit(Lower{*node, operands, grid, placements}, node->operation());
    lowered[node.get()] = made;
    if (const auto* input = node->as<Input>()) inputs[input->name] = made;
  }
  std::vector<ia::Plan::Output> outputs;
  for (const auto& output : plan.outputs()) {
    ia::NodePtr result = lowered.at(output.node.get());
    if (output.tied_input) {
      result = move_to(result, inputs.at(*output.tied_input)->type());
    } else if (const auto named = output_placements.find(output.name); named != output_placements.end()) {
      result =
          move_to(result, ia::PhysicalType::placed("output " + output.name, output.node->type(), grid, named->second));
    }
    outputs.push_back({output.name, std::move(result), output.tied_input});
  }
  return ia::Plan::make(std::move(outputs));
}

}  // namespace joinsum::tra

#include "optimizer/rules/rule.h"

#include <algorithm>
#include <iterator>

#include "ia/nodes.h"
#include "optimizer/rules/families.h"

namespace joinsum::optimizer::rules {
namespace {

bool fits(Shape shape, const ia::Node& node) {
  switch (shape) {
    case Shape::kAny:
      return true;
    case Shape::kBroadcast:
      return node.as<ia::Broadcast>() != nullptr;
    case Shape::kShuffle:
      return node.as<ia::Shuffle>() != nullptr;
    case Shape::kMove:
      return ia::is_move(node.operation());
    case Shape::kJoin:
      return node.as<ia::LocalJoin>() != nullptr;
    case Shape::kAggregate:
      return node.as<ia::LocalAggregate>() != nullptr;
    case Shape::kFilter:
      return node.as<ia::LocalFilter>() != nullptr;
    case Shape::kMap:
      return node.as<ia::LocalMap>() != nullptr;
  }
  return false;
}

/// Adds the nodes that `pattern` meets at `node`; patterns are a few levels deep.
bool collect(const Pattern& pattern, const ia::NodePtr& node, Match& out) {
  if (!fits(pattern.shape, *node)) return false;
  out.push_back(node);
  for (size_t i = 0; i < pattern.inputs.size(); ++i) {
    if (!collect(pattern.inputs[i], node->input(i), out)) return false;
  }
  return true;
}

}  // namespace

const std::vector<Rule>& all_rules() {
  static const std::vector<Rule> table = [] {
    std::vector<Rule> all;
    for (auto family : {composition_rules(), repartition_rules(), matrix_product_rules(), physical_rules()}) {
      all.insert(all.end(), std::make_move_iterator(family.begin()), std::make_move_iterator(family.end()));
    }
    return all;
  }();
  return table;
}

const Rule& rule_named(const std::string& name) {
  std::vector<std::string> known;
  for (const Rule& rule : all_rules()) {
    if (rule.name == name) return rule;
    known.push_back(rule.name);
  }
  throw PlanError(concatenate("optimize: no such rule: rule=", name, ", rules=", known));
}

std::optional<Match> match(const Pattern& pattern, const ia::NodePtr& node) {
  Match out;
  if (!collect(pattern, node, out)) return std::nullopt;
  return out;
}

std::vector<ia::NodePtr> apply(const Rule& rule, const ia::NodePtr& node) {
  const auto met = match(rule.pattern, node);
  if (!met) return {};
  try {
    if (rule.condition && !rule.condition(*met)) return {};
    return rule.rewrite(*met).nodes;
  } catch (const PlanError&) {
  } catch (const KernelError&) {
  }
  return {};
}

// --- what the families share -----------------------------------------------------------------------------------------

bool keeps_keys(const ia::NodePtr& map) {
  const ia::LocalMap& op = map_at(map);
  return op.outputs == 1 && op.key_map.is_identity(map->input(0)->type().relation.arity());
}

Dims split_dims(const ia::GridPlacement& target) {
  Dims dims;
  for (const ia::AxisState& state : target.states) {
    const auto* split = std::get_if<ia::Split>(&state);
    if (split != nullptr && !position_of(dims, split->dim)) dims.push_back(split->dim);
  }
  std::sort(dims.begin(), dims.end());
  return dims;
}

ia::NodePtr below_moves(const ia::NodePtr& node) {
  ia::NodePtr out = node;
  while (ia::is_move(out->operation()) && !out->input(0)->type().placement.pending()) out = out->input(0);
  return out;
}

ia::NodePtr broadcasted(const ia::NodePtr& node, Dims axes) {
  const ia::NodePtr broadcast = ia::make(ia::Broadcast{std::move(axes)}, {node});
  const ia::NodePtr input = below_moves(node);
  return input == node ? broadcast : ia::move_to(input, broadcast->type().placement);
}

ia::NodePtr moved_like(const ia::NodePtr& move, const ia::NodePtr& input) {
  if (const auto* broadcast = move->as<ia::Broadcast>()) return broadcasted(input, broadcast->axes);
  return ia::make(move->operation(), {below_moves(input)});
}

ia::NodePtr before_move(const ia::NodePtr& node) { return ia::is_move(node->operation()) ? node->input(0) : node; }

std::pair<ia::NodePtr, ia::NodePtr> shuffled_to_meet(const ia::NodePtr& left, const ia::NodePtr& right,
                                                     const Dims& left_keys, const Dims& right_keys, const Dims& axes) {
  const auto target = [&](const ia::NodePtr& node, const Dims& keys) {
    const auto* now = node->type().placement.grid();
    ia::GridPlacement out = now != nullptr ? *now : *ia::Placement::replicated(node->type().grid).grid();
    for (size_t i = 0; i < axes.size(); ++i) {
      const size_t key = i % keys.size();
      const int64_t domain =
          std::max(left->type().relation.frontier[left_keys[key]], right->type().relation.frontier[right_keys[key]]);
      out.states[axes[i]] = ia::Split{keys[key], domain};
    }
    return out;
  };
  return {ia::make(ia::Shuffle{target(left, left_keys)}, {below_moves(left)}),
          ia::make(ia::Shuffle{target(right, right_keys)}, {below_moves(right)})};
}

}  // namespace joinsum::optimizer::rules

#pragma once

#include <algorithm>
#include <optional>
#include <random>

#include "ia/text.h"

namespace joinsum::testing {

/// Mistakes that an optimizer may make in a plan, one at a time, at random nodes.
class Mutations {
 public:
  explicit Mutations(uint64_t seed) : random_(seed) {}

  enum class Outcome { kNone, kIllTyped, kMade };
  struct Mutant {
    Outcome outcome = Outcome::kNone;
    std::string kind;
    std::optional<ia::Plan> plan = {};
  };

  static std::vector<std::string> kinds() {
    std::vector<std::string> out;
    for (const auto& [kind, mistake] : kMistakes) out.push_back(kind);
    return out;
  }

  /// A plan with one mistake; it may happen to mean the same. `kNone`: the node drawn has no such mistake.
  Mutant mutant(const ia::Plan& plan) {
    const auto& [kind, mistake] = kMistakes[draw(kMistakes.size())];
    try {
      if (kind == "output names swapped") return made(kind, swapped_names(plan));
      const ia::NodePtr node = plan.order()[draw(plan.order().size())];
      const ia::NodePtr fresh = (this->*mistake)(node, plan);
      if (fresh == nullptr || fresh == node) return {Outcome::kNone, kind};
      return made(kind, with(plan, node, fresh));
    } catch (const PlanError&) {
    } catch (const KernelError&) {
    }
    return {Outcome::kIllTyped, kind};
  }

 private:
  using Kernel = kernels::table::Kernel;
  using Mistake = ia::NodePtr (Mutations::*)(const ia::NodePtr&, const ia::Plan&);

  size_t draw(size_t count) { return static_cast<size_t>(random_() % count); }
  bool chance() { return draw(2) == 0; }

  static Mutant made(const std::string& kind, std::optional<ia::Plan> plan) {
    if (!plan) return {Outcome::kNone, kind};
    return {Outcome::kMade, kind, std::move(plan)};
  }

  /// Users are made anew; what no longer type-checks raises. Outputs may change their types.
  static ia::Plan with(const ia::Plan& plan, const ia::NodePtr& node, const ia::NodePtr& fresh) {
    std::unordered_map<const ia::Node*, ia::NodePtr> now{{node.get(), fresh}};
    for (const ia::NodePtr& user : plan.order()) {
      if (user == node) continue;
      std::vector<ia::NodePtr> inputs;
      for (const ia::NodePtr& input : user->inputs()) inputs.push_back(now.at(input.get()));
      now[user.get()] = inputs == user->inputs() ? user : ia::make(user->operation(), inputs);
    }
    std::vector<ia::Plan::Output> outputs;
    for (const auto& output : plan.outputs())
      outputs.push_back({output.name, now.at(output.node.get()), output.tied_input});
    return ia::Plan::make(std::move(outputs));
  }

  static std::optional<ia::Plan> swapped_names(const ia::Plan& plan) {
    auto outputs = plan.outputs();
    if (outputs.size() < 2) return std::nullopt;
    std::swap(outputs[0].name, outputs[1].name);
    return ia::Plan::make(std::move(outputs));
  }

  static bool is_move(const ia::NodePtr& node) {
    return node->as<ia::Broadcast>() != nullptr || node->as<ia::Shuffle>() != nullptr;
  }

  ia::NodePtr move_dropped(const ia::NodePtr& node, const ia::Plan&) {
    return is_move(node) ? node->input(0) : nullptr;
  }

  ia::NodePtr target_changed(const ia::NodePtr& node, const ia::Plan&) {
    const auto* shuffle = node->as<ia::Shuffle>();
    const auto* broadcast = node->as<ia::Broadcast>();
    if (shuffle != nullptr) {
      ia::GridPlacement target = shuffle->target;
      const Dims& frontier = node->type().relation.frontier;
      const size_t dim = draw(frontier.size() + 1);
      ia::AxisState& state = target.states[draw(target.states.size())];
      state = ia::Replicated{};
      if (dim < frontier.size()) state = ia::Split{static_cast<int64_t>(dim), frontier[dim]};
      return ia::make(ia::Shuffle{target}, node->inputs());
    }
    if (broadcast == nullptr || broadcast->axes.size() < 2) return nullptr;
    Dims axes = broadcast->axes;
    axes.erase(axes.begin() + static_cast<int64_t>(draw(axes.size())));
    return ia::make(ia::Broadcast{axes}, node->inputs());
  }

  ia::NodePtr aggregate_dropped(const ia::NodePtr& node, const ia::Plan&) {
    return node->as<ia::LocalAggregate>() == nullptr ? nullptr : node->input(0);
  }

  ia::NodePtr groups_changed(const ia::NodePtr& node, const ia::Plan&) {
    const auto* aggregate = node->as<ia::LocalAggregate>();
    if (aggregate == nullptr) return nullptr;
    Dims group = all_dims(node->input(0)->type().relation.arity());
    std::shuffle(group.begin(), group.end(), random_);
    group.resize(chance() ? aggregate->group_by.size() : draw(group.size() + 1));
    return ia::make(ia::LocalAggregate{group, aggregate->kernel}, node->inputs());
  }

  ia::NodePtr keys_changed(const ia::NodePtr& node, const ia::Plan&) {
    const auto* join = node->as<ia::LocalJoin>();
    if (join == nullptr) return nullptr;
    ia::LocalJoin changed = *join;
    if (chance()) {
      std::swap(changed.left_keys, changed.right_keys);
    } else {
      Dims& keys = chance() ? changed.left_keys : changed.right_keys;
      std::shuffle(keys.begin(), keys.end(), random_);
      if (chance() && !keys.empty()) {
        changed.left_keys.pop_back();
        changed.right_keys.pop_back();
      }
    }
    return ia::make(changed, node->inputs());
  }

  ia::NodePtr operands_swapped(const ia::NodePtr& node, const ia::Plan&) {
    const auto* join = node->as<ia::LocalJoin>();
    if (join == nullptr) return nullptr;
    const bool keys_too = chance();
    const ia::LocalJoin swapped{keys_too ? join->right_keys : join->left_keys,
                                keys_too ? join->left_keys : join->right_keys, join->kernel};
    return ia::make(swapped, {node->input(1), node->input(0)});
  }

  ia::NodePtr kernel_changed(const ia::NodePtr& node, const ia::Plan&) {
    static const std::vector<const char*> kOfTwo{
        "matmul", "matmul_tn",          "matmul_nt",          "mul", "add", "sub", "max",
        "min",    "squared_difference", "contract[ij,jk->ki]"};
    static const std::vector<const char*> kOfOne{"id",      "relu", "negate",         "scale[2]", "scale[-1]",
                                                 "square",  "abs",  "sigmoid",        "tanh",     "transpose",
                                                 "row_sum", "diag", "relu_derivative"};
    static const std::vector<const char*> kAggregations{"max", "min", "mul", "sub", "add | relu", "add | scale[2]",
                                                        "add"};
    const auto one_of = [&](const std::vector<const char*>& names) { return Kernel::parse(names[draw(names.size())]); };
    ia::Operation operation = node->operation();
    if (auto* join = std::get_if<ia::LocalJoin>(&operation)) {
      join->kernel = chance() ? one_of(kOfTwo) : join->kernel.followed_by(one_of(kOfOne));
    } else if (auto* aggregate = std::get_if<ia::LocalAggregate>(&operation)) {
      aggregate->kernel = one_of(kAggregations);
    } else if (auto* map = std::get_if<ia::LocalMap>(&operation)) {
      map->array_map = chance() ? one_of(kOfOne) : map->array_map.followed_by(one_of(kOfOne));
    } else {
      return nullptr;
    }
    return operation == node->operation() ? nullptr : ia::make(operation, node->inputs());
  }

  ia::NodePtr filter_changed(const ia::NodePtr& node, const ia::Plan&) {
    const auto* filter = node->as<ia::LocalFilter>();
    if (filter == nullptr) return nullptr;
    if (chance()) return node->input(0);
    return ia::make(ia::LocalFilter{relation::KeyExpression::unary(relation::KeyOperator::kNot, filter->predicate)},
                    node->inputs());
  }

  ia::NodePtr map_changed(const ia::NodePtr& node, const ia::Plan&) {
    const auto* map = node->as<ia::LocalMap>();
    if (map == nullptr) return nullptr;
    if (chance()) return node->input(0);
    auto components = map->key_map.components();
    std::shuffle(components.begin(), components.end(), random_);
    return ia::make(ia::LocalMap{map->outputs, relation::KeyMap(components), map->array_map}, node->inputs());
  }

  /// A map over partials that are still to be reduced.
  ia::NodePtr reduced_late(const ia::NodePtr& node, const ia::Plan&) {
    if (node->as<ia::LocalMap>() == nullptr || !is_move(node->input(0))) return nullptr;
    const ia::NodePtr& move = node->input(0);
    return ia::make(move->operation(), {ia::make(node->operation(), {move->input(0)})});
  }

  /// An operand that is another node, of the same type where there is one.
  ia::NodePtr operand_changed(const ia::NodePtr& node, const ia::Plan& plan) {
    if (node->inputs().empty()) return nullptr;
    std::vector<ia::NodePtr> inputs = node->inputs();
    ia::NodePtr& input = inputs[draw(inputs.size())];
    std::vector<ia::NodePtr> others;
    for (const ia::NodePtr& other : plan.order()) {
      if (other == node) break;
      if (other != input && other->type().relation == input->type().relation) others.push_back(other);
    }
    if (others.empty()) return nullptr;
    input = others[draw(others.size())];
    return ia::make(node->operation(), inputs);
  }

  inline static const std::vector<std::pair<std::string, Mistake>> kMistakes{
      {"move dropped", &Mutations::move_dropped},
      {"target changed", &Mutations::target_changed},
      {"aggregate dropped", &Mutations::aggregate_dropped},
      {"groups changed", &Mutations::groups_changed},
      {"join keys changed", &Mutations::keys_changed},
      {"operands swapped", &Mutations::operands_swapped},
      {"kernel changed", &Mutations::kernel_changed},

      {"filter changed", &Mutations::filter_changed},
      {"map changed", &Mutations::map_changed},
      {"reduced late", &Mutations::reduced_late},
      {"operand changed", &Mutations::operand_changed},
      {"output names swapped", nullptr}};

  std::mt19937_64 random_;
};

}  // namespace joinsum::testing

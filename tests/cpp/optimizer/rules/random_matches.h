#pragma once

#include <algorithm>

#include "ia/interpret.h"
#include "optimizer/rules/rule.h"
#include "random_plans.h"

namespace joinsum::testing {

/// Draws physical plans that hold a given pattern of operators, with random operands, placements and kernels; a parent
/// or two may stand above it. Values are small integers.
class RandomMatches {
 public:
  explicit RandomMatches(uint64_t seed) : random_(seed) {}

  /// A plan with one output, and the node in it that the pattern was drawn for.
  std::pair<ia::Plan, ia::NodePtr> plan(const optimizer::rules::Pattern& pattern) {
    for (;;) {
      grid_ = random_.grid(6);
      inputs_ = 0;
      random_.draw_cuts();
      matrices_ = random_.chance(30);
      try {
        const ia::NodePtr node = draw(pattern);
        ia::NodePtr root = node;
        while (random_.chance(35)) root = parent(root);
        if (root->type().placement.pending()) root = ia::broadcast(root);
        if (!fits(*root)) continue;
        return {ia::Plan::make({{"Z", root, std::nullopt}}), node};
      } catch (const PlanError&) {
      } catch (const KernelError&) {
      }
    }
  }

  std::map<std::string, ia::Contents> inputs(const ia::Plan& plan) {
    std::map<std::string, ia::Contents> out;
    for (const auto& input : plan.inputs())
      out[input->as<ia::Input>()->name] = random_.relation(input->type().relation);
    return out;
  }

 private:
  using Kernel = kernels::table::Kernel;

  static bool fits(const ia::Node& node) {
    return node.type().relation.tuples() <= 120 && node.type().relation.elements() <= 1500;
  }

  ia::NodePtr checked(const ia::NodePtr& node) {
    if (!fits(*node)) throw PlanError("random: too large");
    return node;
  }

  ia::NodePtr draw(const optimizer::rules::Pattern& pattern) {
    using optimizer::rules::Shape;
    std::vector<ia::NodePtr> below;
    for (const auto& input : pattern.inputs) below.push_back(draw(input));
    switch (pattern.shape) {
      case Shape::kAny:
        return leaf();
      case Shape::kBroadcast:
        return broadcast(below[0]);
      case Shape::kShuffle:
        return shuffle(below[0]);
      case Shape::kMove:
        return random_.chance(50) ? broadcast(below[0]) : shuffle(below[0]);
      case Shape::kJoin:
        return join(below[0], below[1]);
      case Shape::kAggregate:
        return aggregate(below[0]);
      case Shape::kFilter:
        return filter(below[0]);
      case Shape::kMap:
        return map(below[0]);
    }
    return nullptr;
  }

  ia::NodePtr leaf() {
    relation::RelationType type = matrices_ ? matrix() : random_.relation_type();
    std::string name = "I" + std::to_string(inputs_++);
    ia::NodePtr node = ia::make_input(name, ia::PhysicalType::placed("random", type, grid_, placement(type)));
    if (random_.chance(25)) node = aggregate(node);
    if (random_.chance(8)) node = map(node);
    return checked(node);
  }

  relation::RelationType matrix() {
    const CutPoints& a = random_.cuts();
    const CutPoints& b = random_.cuts();
    const auto parts = [](const CutPoints& cuts) { return static_cast<int64_t>(cuts.size()) - 1; };
    return relation::RelationType::make("random", DType::kFloat64, {parts(a), parts(b)},
                                        {relation::Axis::cut(0, a), relation::Axis::cut(1, b)});
  }

  ia::Placement placement(const relation::RelationType& type) { return random_.placement(type, grid_); }

  ia::NodePtr broadcast(const ia::NodePtr& input) {
    if (random_.chance(60)) return ia::broadcast(input);
    return ia::make(ia::Broadcast{some(grid_.rank(), 50)}, {input});
  }

  ia::NodePtr shuffle(const ia::NodePtr& input) {
    const relation::RelationType& type = input->type().relation;
    if (random_.chance(30) && type.arity() > 0) {
      Dims dims = some(type.arity(), 60);
      if (!dims.empty()) return ia::shuffle(input, dims);
    }
    ia::GridPlacement target = *placement(type).grid();
    for (const int64_t axis : input->type().placement.axes_in<ia::Pending>()) {
      if (random_.chance(30)) target.states[axis] = input->type().placement.grid()->states[axis];
    }
    return ia::make(ia::Shuffle{target}, {input});
  }

  Kernel then_some(Kernel kernel) {
    const int64_t percent = 20;
    if (!random_.chance(percent)) return kernel;
    const auto next = random_.one_of<std::string>({"relu", "scale[2]", "negate", "row_sum", "transpose"});
    return kernel.followed_by(Kernel::parse(next));
  }

  /// Where operands would not meet, as drawn, moves bring them together.
  ia::NodePtr join(const ia::NodePtr& left, const ia::NodePtr& right) {
    const relation::RelationType& a = left->type().relation;
    const relation::RelationType& b = right->type().relation;
    Dims left_keys = some(a.arity(), 50);
    Dims right_keys = some(b.arity(), 50);
    left_keys.resize(std::min(left_keys.size(), right_keys.size()));
    right_keys.resize(left_keys.size());
    if (matrices_ && random_.chance(70)) {
      left_keys = {1};
      right_keys = {0};
    }
    const auto kernel =
        random_.one_of<std::string>({"matmul", "matmul", "matmul_tn", "matmul_nt", "mul", "mul", "mul | row_sum",
                                     "mul | total", "add", "sub", "max", "contract[ij,ij->i]"});
    return checked(ia::make(ia::LocalJoin{left_keys, right_keys, then_some(Kernel::parse(kernel))}, {left, right}));
  }

  ia::NodePtr aggregate(const ia::NodePtr& input) {
    const int64_t arity = input->type().relation.arity();
    Dims group = random_.chance(25) ? all_dims(arity) : some(arity, 60);
    if (arity == 3 && random_.chance(40)) group = {0, 2};
    const auto kernel = random_.one_of<std::string>({"add", "add", "add", "max", "min"});
    return ia::make(ia::LocalAggregate{group, then_some({kernel, {}})}, {input});
  }

  ia::NodePtr filter(const ia::NodePtr& input) {
    const int64_t arity = input->type().relation.arity();
    if (arity == 0) return ia::make(ia::LocalFilter{relation::KeyExpression::truth(random_.chance(70))}, {input});
    const auto op =
        random_.one_of<relation::KeyOperator>({relation::KeyOperator::kEqual, relation::KeyOperator::kNotEqual,
                                               relation::KeyOperator::kLess, relation::KeyOperator::kGreaterEqual});
    const auto component = [&] { return relation::KeyExpression::component(random_.between(0, arity - 1)); };
    auto right = random_.chance(40) ? component() : relation::KeyExpression::constant(random_.between(0, 2));
    return ia::make(ia::LocalFilter{relation::KeyExpression::binary(op, component(), std::move(right))}, {input});
  }

  ia::NodePtr map(const ia::NodePtr& input) {
    const int64_t arity = input->type().relation.arity();
    const auto kernel = Kernel::parse(random_.one_of<std::string>(
        {"id", "relu", "scale[2]", "negate", "transpose", "row_sum", "cast[f32]", "cast[f64]", "abs"}));
    if (random_.chance(65))
      return ia::make(ia::LocalMap{1, relation::KeyMap::identity(arity), then_some(kernel)}, {input});
    auto components = relation::KeyMap::projection(some(arity, 70)).components();
    const bool copies = random_.chance(25);
    if (copies) components.push_back(relation::KeyExpression::output());
    if (arity > 0 && random_.chance(25)) {
      components.push_back(relation::KeyExpression::binary(
          relation::KeyOperator::kModulo, relation::KeyExpression::component(random_.between(0, arity - 1)),
          relation::KeyExpression::constant(2)));
    }
    const Kernel array_map = copies ? Kernel{"duplicate", {}} : kernel;
    return checked(ia::make(ia::LocalMap{copies ? 2 : 1, relation::KeyMap(components), array_map}, {input}));
  }

  ia::NodePtr parent(const ia::NodePtr& input) {
    switch (random_.between(0, 5)) {
      case 0:
        return broadcast(input);
      case 1:
        return shuffle(input);
      case 2:
        return join(input, random_.chance(50) ? input : leaf());
      case 3:
        return aggregate(input);
      case 4:
        return filter(input);
      default:
        return map(input);
    }
  }

  Dims some(int64_t count, int64_t percent) {
    Dims dims;
    for (int64_t d = 0; d < count; ++d) {
      if (random_.chance(percent)) dims.insert(dims.begin() + random_.between(0, static_cast<int64_t>(dims.size())), d);
    }
    return dims;
  }

  RandomPlans random_;
  ia::Grid grid_;
  int64_t inputs_ = 0;
  bool matrices_ = false;
};

}  // namespace joinsum::testing

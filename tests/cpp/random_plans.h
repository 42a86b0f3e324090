#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "ia/nodes.h"
#include "relation/typing.h"
#include "tra/interpret.h"
#include "tra/nodes.h"

namespace joinsum::testing {

/// Draws well-typed logical plans of all operators over small relations (frontiers 1 to 4, extents 0 to 7, uneven
/// cuts, some irregular keys), relations to run them on, and places for those. Values stay integers below 2^40, so that
/// results are exact in any order.
class RandomPlans {
 public:
  explicit RandomPlans(uint64_t seed) : rng_(seed) {}

  int64_t between(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(rng_); }
  bool chance(int64_t percent) { return between(1, 100) <= percent; }
  template <class T>
  const T& one_of(const std::vector<T>& choices) {
    return choices[between(0, static_cast<int64_t>(choices.size()) - 1)];
  }

  /// Up to `operators` operators over 1 to 3 inputs A, B, C; outputs Z0, Z1, ..., some tied to inputs of their type.
  tra::Plan plan(int64_t operators = 8) {
    draw_dimensions();
    pool_.clear();
    for (const char* name : {"A", "B", "C"}) {
      if (pool_.empty() || chance(60)) pool_.push_back({tra::make_input(name, relation_type()), kLargestInput});
    }
    for (int64_t i = between(1, operators); i > 0; --i) {
      if (auto drawn = draw_operator()) pool_.push_back(std::move(*drawn));
    }
    return finish();
  }

  /// Draws the cut points anew; one of them.
  void draw_cuts() { draw_dimensions(); }
  const CutPoints& cuts() { return one_of(dimensions_); }

  /// A type over the cut points that the operands of the latest plan share.
  relation::RelationType relation_type() {
    if (dimensions_.empty()) draw_dimensions();
    Dims frontier;
    std::vector<relation::Axis> axes;
    for (int64_t d = between(0, 3); d > 0; --d) {
      const CutPoints& cuts = one_of(dimensions_);
      if (chance(85)) axes.push_back(relation::Axis::cut(static_cast<int64_t>(frontier.size()), cuts));
      frontier.push_back(static_cast<int64_t>(cuts.size()) - 1);
    }
    if (axes.size() < 3 && chance(35)) axes.push_back(relation::Axis::whole(chance(10) ? 0 : between(1, 3)));
    if (chance(20)) std::shuffle(axes.begin(), axes.end(), rng_);
    const DType dtype = chance(90) ? DType::kFloat64 : DType::kFloat32;
    return relation::RelationType::make("random", dtype, frontier, axes, chance(20) ? some_keys(frontier) : nullptr);
  }

  /// Small integers.
  tra::Relation relation(const relation::RelationType& type) {
    tra::Relation out;
    for (const Key& key : type.all_keys()) {
      auto array = kernels::reference::Array::zeros(type.array_shape(key));
      for (double& value : array.values) value = static_cast<double>(between(-kLargestInput, kLargestInput));
      out.emplace_back(key, std::move(array));
    }
    return out;
  }

  std::map<std::string, tra::Relation> relations(const tra::Plan& plan) {
    std::map<std::string, tra::Relation> out;
    for (const auto& input : plan.inputs()) out[input->as<tra::Input>()->name] = relation(input->type());
    return out;
  }

  ia::Grid grid(int64_t most_sites = 6) { return ia::Grid::of_sites(between(1, most_sites)); }

  /// Each grid axis replicates the relation or splits one of its key dimensions, now and then on a domain above the
  /// frontier.
  ia::Placement placement(const relation::RelationType& type, const ia::Grid& grid) {
    Dims domains = type.frontier;
    for (int64_t& domain : domains) domain += chance(15) ? between(1, 3) : 0;
    ia::GridPlacement out{std::vector<ia::AxisState>(grid.axes.size(), ia::Replicated{})};
    for (ia::AxisState& state : out.states) {
      if (type.arity() == 0 || chance(35)) continue;
      const int64_t dim = between(0, type.arity() - 1);
      state = ia::Split{dim, domains[dim]};
    }
    return out;
  }

  std::map<std::string, ia::Placement> placements(const tra::Plan& plan, const ia::Grid& grid) {
    std::map<std::string, ia::Placement> out;
    for (const auto& input : plan.inputs()) {
      if (chance(90)) out.emplace(input->as<tra::Input>()->name, placement(input->type(), grid));
    }
    return out;
  }

  /// A translation of `plan` by another way than `lower`: random moves before each operator, wherever it takes them, so
  /// that partials stay pending and operands meet by their splits. Ties are dropped.
  ia::Plan physical(const tra::Plan& plan, const ia::Grid& grid) {
    std::map<const tra::Node*, ia::NodePtr> made;
    for (const auto& node : plan.order()) {
      std::vector<ia::NodePtr> inputs;
      for (const auto& input : node->inputs()) inputs.push_back(made.at(input.get()));
      made[node.get()] = inputs.empty() ? placed_input(*node, grid) : local_operator(*node, inputs);
    }
    std::vector<ia::Plan::Output> outputs;
    for (const auto& output : plan.outputs())
      outputs.push_back({output.name, made.at(output.node.get()), std::nullopt});
    return ia::Plan::make(std::move(outputs));
  }

 private:
  using Kernel = kernels::table::Kernel;

  static constexpr int64_t kLargestInput = 3;
  static constexpr double kLargestValue = 1099511627776.0;  // 2^40
  static constexpr int64_t kMostTuples = 300;
  static constexpr int64_t kMostElements = 6000;

  /// A node, and a bound of the absolute values in it.
  struct Drawn {
    tra::NodePtr node;
    double bound = 0;
  };
  using Draw = std::optional<Drawn> (RandomPlans::*)();

  void draw_dimensions() {
    dimensions_.clear();
    for (int64_t i = between(1, 3); i > 0; --i) dimensions_.push_back(cut_points());
  }

  CutPoints cut_points() {
    const int64_t parts = between(1, 4);
    if (chance(35)) return even_cuts(between(parts, 7), parts);
    CutPoints cuts{0};
    const int64_t size = between(1, 2);
    const bool equal = chance(50);
    for (int64_t i = 0; i < parts; ++i)
      cuts.push_back(cuts.back() + (equal ? size : std::min(between(0, 3), 7 - cuts.back())));
    return cuts;
  }

  std::shared_ptr<const std::vector<Key>> some_keys(const Dims& frontier) {
    auto keys = std::make_shared<std::vector<Key>>();
    const bool bag = chance(40);
    for (const Key& key : keys_of(Box::below(frontier))) {
      for (int64_t copies = chance(70) ? (bag ? between(1, 2) : 1) : 0; copies > 0; --copies) keys->push_back(key);
    }
    return keys;
  }

  Dims some_dims(int64_t arity, int64_t most) {
    Dims dims = all_dims(arity);
    std::shuffle(dims.begin(), dims.end(), rng_);
    dims.resize(between(0, std::min(arity, most)));
    return dims;
  }

  /// Prefers nodes that were made late.
  const Drawn& operand() {
    const auto last = static_cast<int64_t>(pool_.size()) - 1;
    return pool_[chance(50) ? between(std::max<int64_t>(0, last - 1), last) : between(0, last)];
  }

  /// Tries until an operator type-checks and stays small.
  std::optional<Drawn> draw_operator() {
    static const std::vector<Draw> kDraws{&RandomPlans::draw_aggregate, &RandomPlans::draw_join,
                                          &RandomPlans::draw_join,      &RandomPlans::draw_rekey,
                                          &RandomPlans::draw_filter,    &RandomPlans::draw_transform,
                                          &RandomPlans::draw_tile,      &RandomPlans::draw_aggregate,
                                          &RandomPlans::draw_concat,    &RandomPlans::draw_upsert};
    for (int attempt = 0; attempt < 30; ++attempt) {
      try {
        auto drawn = (this->*one_of(kDraws))();
        if (!drawn || !(drawn->bound < kLargestValue)) continue;
        const relation::RelationType& type = drawn->node->type();
        if (type.tuples() <= kMostTuples && type.elements() <= kMostElements) return drawn;
      } catch (const PlanError&) {
      } catch (const KernelError&) {
      }
    }
    return std::nullopt;
  }

  std::optional<Drawn> draw_aggregate() {
    const Drawn& input = operand();
    const int64_t arity = input.node->type().arity();
    const auto tuples = static_cast<double>(std::max<int64_t>(1, input.node->type().tuples()));
    const std::string kernel = one_of<std::string>({"add", "add", "add", "max", "min", "mul", "sub"});
    double bound = input.bound;
    if (kernel == "add" || kernel == "sub") bound *= tuples;
    if (kernel == "mul") bound = std::pow(std::max(1.0, bound), tuples);
    return Drawn{tra::make(tra::Aggregate{some_dims(arity, 3), then_some({kernel, {}}, bound)}, {input.node}), bound};
  }

  std::optional<Drawn> draw_join() {
    const Drawn& left = operand();
    const Drawn& right = operand();
    const int64_t most = std::min(left.node->type().arity(), right.node->type().arity());
    Dims left_keys = some_dims(left.node->type().arity(), most);
    Dims right_keys = some_dims(right.node->type().arity(), most);
    left_keys.resize(std::min(left_keys.size(), right_keys.size()));
    right_keys.resize(left_keys.size());
    const std::string kernel = one_of<std::string>(
        {"add", "sub", "mul", "max", "matmul", "matmul", "contract[ij,ij->ij]", "contract[i,j->ij]"});
    double bound = std::max(left.bound, right.bound);
    if (kernel == "add" || kernel == "sub") bound = left.bound + right.bound;
    if (kernel == "mul" || kernel[0] == 'c') bound = left.bound * right.bound;
    if (kernel == "matmul") bound = left.bound * right.bound * 64;
    const Kernel followed = then_some(Kernel::parse(kernel), bound);
    return Drawn{tra::make(tra::Join{left_keys, right_keys, followed}, {left.node, right.node}), bound};
  }

  std::optional<Drawn> draw_rekey() {
    const Drawn& input = operand();
    const int64_t arity = input.node->type().arity();
    std::vector<relation::KeyExpression> components = relation::KeyMap::identity(arity).components();
    std::shuffle(components.begin(), components.end(), rng_);
    if (chance(50)) components.erase(components.begin() + between(0, arity), components.end());
    if (chance(50) && arity > 0) components.push_back(integer_expression(arity));
    if (components.size() > 3) return std::nullopt;
    return Drawn{tra::make(tra::Rekey{relation::KeyMap(components)}, {input.node}), input.bound};
  }

  std::optional<Drawn> draw_filter() {
    const Drawn& input = operand();
    const int64_t arity = input.node->type().arity();
    relation::KeyExpression predicate = comparison(arity);
    if (chance(20))
      predicate = relation::KeyExpression::binary(relation::KeyOperator::kOr, predicate, comparison(arity));
    if (chance(20)) predicate = relation::KeyExpression::unary(relation::KeyOperator::kNot, predicate);
    return Drawn{tra::make(tra::Filter{predicate}, {input.node}), input.bound};
  }

  std::optional<Drawn> draw_transform() {
    const Drawn& input = operand();
    const std::string kernel = one_of<std::string>(
        {"id", "relu", "negate", "scale[2]", "abs", "diag", "transpose", "row_sum", "insert_dim[0]"});
    double bound = input.bound * 8;
    return Drawn{tra::make(tra::Transform{then_some(Kernel::parse(kernel), bound)}, {input.node}), bound};
  }

  /// Now and then lets kernels of one operand follow.
  Kernel then_some(Kernel kernel, double& bound) {
    while (chance(12)) {
      const std::string next = one_of<std::string>({"relu", "scale[2]", "transpose", "row_sum", "negate"});
      kernel = kernel.followed_by(Kernel::parse(next));
      bound *= 8;
    }
    return kernel;
  }

  std::optional<Drawn> draw_tile() {
    const Drawn& input = operand();
    if (input.node->type().rank() == 0 || input.node->type().arity() > 3) return std::nullopt;
    const tra::Tile tile{between(0, input.node->type().rank() - 1), between(1, 3)};
    return Drawn{tra::make(tile, {input.node}), input.bound};
  }

  std::optional<Drawn> draw_concat() {
    const Drawn& input = operand();
    const relation::RelationType& type = input.node->type();
    if (type.rank() == 0 || type.arity() == 0) return std::nullopt;
    const tra::Concat concat{between(0, type.arity() - 1), between(0, type.rank() - 1)};
    return Drawn{tra::make(concat, {input.node}), input.bound};
  }

  std::optional<Drawn> draw_upsert() {
    const Drawn& base = operand();
    const Drawn& updates = operand();
    return Drawn{tra::make(tra::Upsert{}, {base.node, updates.node}), std::max(base.bound, updates.bound)};
  }

  relation::KeyExpression component(int64_t arity) { return relation::KeyExpression::component(between(0, arity - 1)); }

  relation::KeyExpression integer_expression(int64_t arity) {
    const relation::KeyOperator op =
        one_of<relation::KeyOperator>({relation::KeyOperator::kAdd, relation::KeyOperator::kMultiply,
                                       relation::KeyOperator::kDivide, relation::KeyOperator::kModulo});
    const bool divides = op == relation::KeyOperator::kDivide || op == relation::KeyOperator::kModulo;
    relation::KeyExpression right =
        divides || chance(50) ? relation::KeyExpression::constant(between(divides ? 1 : 0, 3)) : component(arity);
    return relation::KeyExpression::binary(op, component(arity), std::move(right));
  }

  relation::KeyExpression comparison(int64_t arity) {
    if (arity == 0) return relation::KeyExpression::truth(chance(80));
    const relation::KeyOperator op = one_of<relation::KeyOperator>(
        {relation::KeyOperator::kEqual, relation::KeyOperator::kNotEqual, relation::KeyOperator::kLess,
         relation::KeyOperator::kLessEqual, relation::KeyOperator::kGreater, relation::KeyOperator::kGreaterEqual});
    relation::KeyExpression left = chance(40) ? integer_expression(arity) : component(arity);
    return relation::KeyExpression::binary(
        op, std::move(left), chance(50) ? component(arity) : relation::KeyExpression::constant(between(0, 3)));
  }

  /// The last node is an output, and others may be; an output with the type of an input may be tied to it.
  tra::Plan finish() {
    std::vector<tra::Plan::Output> outputs;
    for (size_t i = 0; i < pool_.size(); ++i) {
      if (i + 1 < pool_.size() && !chance(15)) continue;
      outputs.push_back({"Z" + std::to_string(outputs.size()), pool_[i].node, std::nullopt});
    }
    const tra::Plan untied = tra::Plan::make(outputs);
    for (const auto& input : untied.inputs()) {
      for (auto& output : outputs) {
        if (output.tied_input || !(output.node->type() == input->type()) || !chance(50)) continue;
        output.tied_input = input->as<tra::Input>()->name;
        break;
      }
    }
    return tra::Plan::make(std::move(outputs));
  }

  struct LocalOperation {
    const tra::Node& node;

    const relation::RelationType& input() const { return node.input(0)->type(); }
    ia::Operation operator()(const tra::Input& op) const { return ia::Input{op.name}; }
    ia::Operation operator()(const tra::Aggregate& op) const { return ia::LocalAggregate{op.group_by, op.kernel}; }
    ia::Operation operator()(const tra::Join& op) const {
      return ia::LocalJoin{op.left_keys, op.right_keys, op.kernel};
    }
    ia::Operation operator()(const tra::Rekey& op) const { return ia::LocalMap{1, op.key_map, {"id", {}}}; }
    ia::Operation operator()(const tra::Filter& op) const { return ia::LocalFilter{op.predicate}; }
    ia::Operation operator()(const tra::Transform& op) const {
      return ia::LocalMap{1, relation::KeyMap::identity(input().arity()), op.kernel};
    }
    ia::Operation operator()(const tra::Tile& op) const {
      const auto map = relation::tile_map("tile", input(), op.axis, op.size);
      return ia::LocalMap{map.outputs, map.key_map, map.array_map};
    }
    ia::Operation operator()(const tra::Concat& op) const {
      return ia::LocalAggregate{complement({op.key_dim}, input().arity()), {"concat", {op.axis}}};
    }
    ia::Operation operator()(const tra::Call& call) const { return ia::LocalCall{call}; }
    ia::Operation operator()(const tra::Upsert&) const { return ia::LocalUpsert{}; }
  };

  ia::NodePtr placed_input(const tra::Node& node, const ia::Grid& grid) {
    return ia::make_input(node.as<tra::Input>()->name,
                          ia::PhysicalType::placed("random", node.type(), grid, placement(node.type(), grid)));
  }

  ia::NodePtr local_operator(const tra::Node& node, const std::vector<ia::NodePtr>& inputs) {
    const ia::Operation operation = std::visit(LocalOperation{node}, node.operation());
    for (int attempt = 0; attempt < 8; ++attempt) {
      try {
        std::vector<ia::NodePtr> moved;
        for (const auto& input : inputs) moved.push_back(random_move(input));
        return ia::make(operation, std::move(moved));
      } catch (const PlanError&) {
      }
    }
    std::vector<ia::NodePtr> everywhere;
    for (const auto& input : inputs) everywhere.push_back(ia::broadcast(input));
    return ia::make(operation, std::move(everywhere));
  }

  ia::NodePtr random_move(const ia::NodePtr& node) {
    if (chance(50)) return node;
    const ia::PhysicalType& type = node->type();
    if (chance(30)) return ia::make(ia::Broadcast{some_dims(type.grid.rank(), type.grid.rank())}, {node});
    ia::GridPlacement target = *placement(type.relation, type.grid).grid();
    for (const int64_t axis : type.placement.axes_in<ia::Pending>()) {
      if (chance(50)) target.states[axis] = type.placement.grid()->states[axis];
    }
    return ia::make(ia::Shuffle{target}, {node});
  }

  std::mt19937_64 rng_;
  std::vector<CutPoints> dimensions_;
  std::vector<Drawn> pool_;
};

}  // namespace joinsum::testing

#pragma once

#include "ia/interpret.h"
#include "random_plans.h"

namespace joinsum::testing {

/// Draws well-typed physical plans directly: moves along any axes, joins where operands happen to meet, local sums that
/// leave partials pending, maps that scatter. Outputs are reduced.
class RandomPhysicalPlans {
 public:
  explicit RandomPhysicalPlans(uint64_t seed) : logical_(seed) {}

  ia::Plan plan(int64_t most_sites = 8, int64_t operators = 8) {
    const ia::Grid grid = logical_.grid(most_sites);
    pool_.clear();
    types_.clear();
    for (const char* name : {"A", "B"}) {
      relation::RelationType type = types_.empty() || logical_.chance(60) ? logical_.relation_type() : types_.front();
      types_.push_back(type);
      pool_.push_back(
          ia::make_input(name, ia::PhysicalType::placed("input", type, grid, logical_.placement(type, grid))));
      largest_.push_back(3);
    }
    for (int64_t i = logical_.between(2, operators); i > 0; --i) draw();
    const size_t last = pool_.size() - 1;
    std::vector<ia::Plan::Output> outputs{{"Z0", reduced(pool_[last]), std::nullopt}};
    if (last > 2 && logical_.chance(50)) outputs.push_back({"Z1", reduced(pool_[last - 1]), std::nullopt});
    return ia::Plan::make(std::move(outputs));
  }

  std::map<std::string, ia::Contents> inputs(const ia::Plan& plan) {
    std::map<std::string, ia::Contents> out;
    for (const auto& input : plan.inputs())
      out[input->as<ia::Input>()->name] = logical_.relation(input->type().relation);
    return out;
  }

 private:
  static ia::NodePtr reduced(const ia::NodePtr& node) {
    return node->type().placement.pending() ? ia::broadcast(node) : node;
  }

  size_t operand() {
    const auto last = static_cast<int64_t>(pool_.size()) - 1;
    return static_cast<size_t>(logical_.chance(60) ? last : logical_.between(0, last));
  }

  void draw() {
    for (int attempt = 0; attempt < 40; ++attempt) {
      try {
        const size_t at = operand();
        const size_t other = operand();
        const auto [node, bound] = attempt_one(at, other);
        const relation::RelationType& type = node->type().relation;
        if (!(bound < 1e12) || type.tuples() > 200 || type.elements() > 4000) continue;
        pool_.push_back(node);
        largest_.push_back(bound);
        return;
      } catch (const PlanError&) {
      } catch (const KernelError&) {
      }
    }
  }

  std::pair<ia::NodePtr, double> attempt_one(size_t at, size_t other) {
    const ia::NodePtr& node = pool_[at];
    const double bound = largest_[at];
    const relation::RelationType& type = node->type().relation;
    switch (logical_.between(0, 8)) {
      case 0:
        return {ia::make(ia::Broadcast{some(node->type().grid.rank())}, {node}), bound};
      case 1:
        return {ia::make(ia::Shuffle{target(*node)}, {node}), bound};
      case 2:
      case 3:
      case 4:
        return draw_join(at, other);
      case 5: {
        const std::string kernel = logical_.one_of<std::string>({"add", "add", "max"});
        return {ia::make(ia::LocalAggregate{some(type.arity()), {kernel, {}}}, {node}),
                bound * static_cast<double>(type.tuples() + 1)};
      }
      case 6: {
        const auto kernel = kernels::table::Kernel::parse(
            logical_.one_of<std::string>({"relu", "scale[2]", "transpose", "negate", "row_sum"}));
        return {ia::make(ia::LocalMap{1, relation::KeyMap::identity(type.arity()), kernel}, {node}), bound * 8};
      }
      case 7:
        return {ia::make(ia::LocalUpsert{}, {node, pool_[other]}), std::max(bound, largest_[other])};
      default:
        return draw_keys(at);
    }
  }

  std::pair<ia::NodePtr, double> draw_join(size_t at, size_t other) {
    const relation::RelationType& left = pool_[at]->type().relation;
    const relation::RelationType& right = pool_[other]->type().relation;
    Dims left_keys = some(left.arity());
    Dims right_keys = some(right.arity());
    left_keys.resize(std::min(left_keys.size(), right_keys.size()));
    right_keys.resize(left_keys.size());
    const auto kernel = kernels::table::Kernel::parse(logical_.one_of<std::string>(
        {"matmul", "matmul", "matmul_tn", "mul", "add", "sub", "contract[ij,ij->i]", "contract[ij,kj->ki]"}));
    return {ia::make(ia::LocalJoin{left_keys, right_keys, kernel}, {pool_[at], pool_[other]}),
            largest_[at] * largest_[other] * 50 + 6};
  }

  std::pair<ia::NodePtr, double> draw_keys(size_t at) {
    const relation::RelationType& type = pool_[at]->type().relation;
    if (logical_.chance(40) && type.arity() > 0) {
      const auto predicate = relation::KeyExpression::binary(
          relation::KeyOperator::kLessEqual, relation::KeyExpression::component(logical_.between(0, type.arity() - 1)),
          relation::KeyExpression::constant(logical_.between(0, 2)));
      return {ia::make(ia::LocalFilter{predicate}, {pool_[at]}), largest_[at]};
    }
    auto components = relation::KeyMap::projection(some(type.arity())).components();
    const bool copies = logical_.chance(40);
    if (copies) components.push_back(relation::KeyExpression::output());
    if (type.arity() > 0 && logical_.chance(30)) {
      components.push_back(relation::KeyExpression::binary(
          relation::KeyOperator::kModulo, relation::KeyExpression::component(0), relation::KeyExpression::constant(2)));
    }
    return {ia::make(ia::LocalMap{copies ? 2 : 1, relation::KeyMap(components), {copies ? "duplicate" : "id", {}}},
                     {pool_[at]}),
            largest_[at]};
  }

  Dims some(int64_t count) {
    Dims dims;
    for (int64_t d = 0; d < count; ++d) {
      if (logical_.chance(60)) dims.insert(dims.begin() + logical_.between(0, static_cast<int64_t>(dims.size())), d);
    }
    return dims;
  }

  /// Any placement; pending axes stay so now and then.
  ia::GridPlacement target(const ia::Node& node) {
    ia::GridPlacement out = *logical_.placement(node.type().relation, node.type().grid).grid();
    for (const int64_t a : node.type().placement.axes_in<ia::Pending>()) {
      if (logical_.chance(30)) out.states[a] = node.type().placement.grid()->states[a];
    }
    return out;
  }

  RandomPlans logical_;
  std::vector<ia::NodePtr> pool_;
  std::vector<double> largest_;
  std::vector<relation::RelationType> types_;
};

}  // namespace joinsum::testing

#pragma once

#include <map>
#include <set>

#include "ia/analysis/materialization.h"
#include "ia/nodes.h"
#include "kernels/table/table.h"
#include "optimizer/division/divisions.h"
#include "optimizer/rules/score.h"
#include "tra/lower.h"

namespace joinsum::optimizer {

/// The least cost of any plan of a logical plan, by trying every layout of every operand of every operator: no tables,
/// no candidates. A value is made once, may be put in one more layout, and is taken from the layout that is cheapest to
/// move from. Inputs start anywhere at no cost, but for those of `starts`. For graphs of a few operators on a few
/// sites.
class BruteForce {
 public:
  BruteForce(const tra::Plan& plan, ia::Grid grid, cost::Objective objective,
             std::map<std::string, ia::Placement> starts)
      : plan_(plan), grid_(std::move(grid)), objective_(objective), starts_(std::move(starts)) {
    for (const auto& node : plan.order()) {
      for (const auto& input : node->inputs()) ++uses_[input.get()];
    }
    for (const auto& output : plan.outputs()) ++uses_[output.node.get()];
  }

  double least() {
    walk(0, 0);
    return best_;
  }

 private:
  struct Value {
    std::vector<ia::NodePtr> layouts;  ///< that are there
    bool free = false;                 ///< an input
  };

  bool inner(const tra::NodePtr& join) const {
    if (join->as<tra::Join>() == nullptr || uses_.at(join.get()) != 1) return false;
    return std::any_of(plan_.order().begin(), plan_.order().end(), [&](const tra::NodePtr& node) {
      const auto* sum = node->as<tra::Aggregate>();
      return sum != nullptr && node->input(0) == join && kernels::table::reduces_in_any_order(sum->kernel.first());
    });
  }

  std::vector<ia::Placement> all_placements(const relation::RelationType& relation) const {
    std::vector<Dims> splits{{}};
    for (int64_t axis = 0; axis < grid_.rank(); ++axis) {
      std::vector<Dims> longer;
      for (const Dims& split : splits) {
        for (int64_t dim = division::kNothing; dim < relation.arity(); ++dim) {
          longer.push_back(split);
          longer.back().push_back(dim);
        }
      }
      splits = std::move(longer);
    }
    std::vector<ia::Placement> out;
    for (const Dims& split : splits) out.push_back(division::placement_of(split, relation.frontier));
    return out;
  }

  ia::NodePtr stand_in(const ia::PhysicalType& type) { return ia::make_input("M" + std::to_string(++inputs_), type); }

  double price(const ia::NodePtr& node, cost::Fusion fusion) const {
    return cost::value_of(cost::node_cost(*node, fusion, {}), objective_);
  }

  double move_price(const ia::NodePtr& from, const ia::Placement& to) {
    if (from->type().placement == to) return 0;
    // What holds partials shows in no text.
    if (from->type().placement.pending()) return price(ia::move_to(from, to), cost::Fusion::kNone);
    const auto key = std::pair(from->type().text(true), to.text(from->type().relation.frontier));
    const auto [at, fresh] = prices_.try_emplace(key);
    if (fresh) at->second = price(ia::move_to(from, to), cost::Fusion::kNone);
    return at->second;
  }

  void walk(size_t at, double cost) {
    if (cost >= best_) return;
    if (at == plan_.order().size()) {
      best_ = std::min(best_, cost + reduce());
      return;
    }
    const tra::NodePtr& node = plan_.order()[at];
    if (inner(node)) {
      walk(at + 1, cost);
      return;
    }
    if (const auto* input = node->as<tra::Input>()) {
      const auto start = starts_.find(input->name);
      if (start == starts_.end()) {
        values_[node.get()] = {{}, true};
        walk(at + 1, cost);
      } else {
        made(at, stand_in(ia::PhysicalType::placed("brute force", node->type(), grid_, start->second)), cost);
      }
      return;
    }
    const bool sums = inner(node->input(0));
    const tra::NodePtr& reads = sums ? node->input(0) : node;
    std::vector<ia::NodePtr> operands;
    read(at, *reads, operands, cost);
  }

  /// Each operand in every layout that it has or may be moved to.
  void read(size_t at, const tra::Node& reads, std::vector<ia::NodePtr>& operands, double cost) {
    if (cost >= best_) return;
    if (operands.size() == reads.inputs().size()) {
      run(at, reads, operands, cost);
      return;
    }
    const tra::NodePtr& operand = reads.input(operands.size());
    const Value before = values_.at(operand.get());
    std::set<std::string> done;
    for (const ia::NodePtr& layout : before.layouts) {
      done.insert(layout->type().text(true));
      operands.push_back(layout);
      read(at, reads, operands, cost);
      operands.pop_back();
    }
    for (const ia::Placement& placement : all_placements(operand->type())) {
      const ia::PhysicalType type = ia::PhysicalType::placed("brute force", operand->type(), grid_, placement);
      if (!done.insert(type.text(true)).second) continue;
      double least = before.free ? 0 : kInfinite;
      for (const ia::NodePtr& layout : before.layouts) least = std::min(least, move_price(layout, placement));
      const ia::NodePtr moved = stand_in(type);
      values_.at(operand.get()).layouts.push_back(moved);
      operands.push_back(moved);
      read(at, reads, operands, cost + least);
      operands.pop_back();
      values_.at(operand.get()) = before;
    }
  }

  void run(size_t at, const tra::Node& reads, const std::vector<ia::NodePtr>& operands, double cost) {
    const tra::NodePtr& node = plan_.order()[at];
    ia::NodePtr result;
    try {
      result = ia::make(tra::local_operation(reads), operands);
      const bool contracts = &reads != node.get() || (reads.as<tra::Join>() != nullptr &&
                                                      kernels::table::contracts(reads.as<tra::Join>()->kernel));
      if (contracts && objective_ != cost::Objective::kSeconds && division::leaves_undivided(result->type())) return;
      if (&reads == node.get()) {
        cost += price(result, cost::Fusion::kNone);
      } else {
        const ia::NodePtr join = result;
        result = ia::make(tra::local_operation(*node), {join});
        const cost::Fusions fusions(ia::Plan::make({{"Z", result, std::nullopt}}));
        cost += price(join, fusions.of(*join)) + price(result, fusions.of(*result));
      }
    } catch (const PlanError&) {
      return;
    } catch (const KernelError&) {
      return;
    }
    made(at, result, cost);
  }

  /// A value that several operators read may be put in one more layout.
  void made(size_t at, const ia::NodePtr& result, double cost) {
    const tra::NodePtr& node = plan_.order()[at];
    values_[node.get()] = {{result}, false};
    walk(at + 1, cost);
    if (uses_.at(node.get()) > 1) {
      for (const ia::Placement& placement : all_placements(node->type())) {
        const double extra = move_price(result, placement);
        if (extra == 0) continue;
        const auto type = ia::PhysicalType::placed("brute force", node->type(), grid_, placement);
        values_[node.get()] = {{result, stand_in(type)}, false};
        walk(at + 1, cost + extra);
      }
    }
    values_.erase(node.get());
  }

  /// Outputs that are still pending.
  double reduce() {
    double cost = 0;
    std::set<const tra::Node*> seen;
    for (const auto& output : plan_.outputs()) {
      if (!seen.insert(output.node.get()).second) continue;
      const Value& value = values_.at(output.node.get());
      const bool reduced =
          value.free || std::any_of(value.layouts.begin(), value.layouts.end(),
                                    [](const auto& layout) { return !layout->type().placement.pending(); });
      if (reduced) continue;
      double least = kInfinite;
      for (const ia::Placement& placement : all_placements(output.node->type()))
        least = std::min(least, move_price(value.layouts[0], placement));
      cost += least;
    }
    return cost;
  }

  static constexpr double kInfinite = std::numeric_limits<double>::infinity();
  const tra::Plan& plan_;
  ia::Grid grid_;
  cost::Objective objective_;
  std::unordered_map<const tra::Node*, int64_t> uses_;
  std::unordered_map<const tra::Node*, Value> values_;
  std::map<std::pair<std::string, std::string>, double> prices_;
  std::map<std::string, ia::Placement> starts_;
  int64_t inputs_ = 0;
  double best_ = kInfinite;
};

}  // namespace joinsum::optimizer

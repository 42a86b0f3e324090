#include "optimizer/model/strategies.h"

#include <algorithm>

#include "kernels/table/table.h"
#include "optimizer/division/key_dims.h"

namespace joinsum::optimizer::model {
namespace {

using layouts::Layout;

/// Adds a layout unless the list has its placement; null is none.
void add_layout(std::vector<const Layout*>& layouts, const Layout* layout) {
  const bool known = layout == nullptr || std::any_of(layouts.begin(), layouts.end(), [&](const Layout* other) {
                       return other->placement == layout->placement;
                     });
  if (!known) layouts.push_back(layout);
}

/// The placement in which the other operand of a join meets this one: split by the same keys.
ia::Placement met_by(const ia::Placement& placement, const Dims& keys, const Dims& other_keys) {
  ia::GridPlacement out = *placement.grid();
  for (ia::AxisState& state : out.states) {
    const auto* split = std::get_if<ia::Split>(&state);
    const auto key = split != nullptr ? position_of(keys, split->dim) : std::nullopt;
    state = key ? ia::AxisState(ia::Split{other_keys[*key], split->domain}) : ia::Replicated{};
  }
  return out;
}

/// The same where both are pending along the same axes.
ia::Placement met_by_partials(const ia::Placement& placement, const Dims& keys, const Dims& other_keys) {
  ia::GridPlacement out = *met_by(placement, keys, other_keys).grid();
  for (const int64_t axis : placement.axes_in<ia::Pending>()) out.states[axis] = placement.grid()->states[axis];
  return out;
}

/// Whether each site of a pending layout has a partial value of every key that its coordinates along the other axes
/// may have. A site without rows of what was summed has none.
bool has_all_partials(const Layout& layout) {
  const ia::PhysicalType& type = layout.type;
  ia::GridPlacement whole = *type.placement.grid();
  for (const int64_t axis : type.placement.axes_in<ia::Pending>()) whole.states[axis] = ia::Replicated{};
  return type.holding == ia::Holding::placed(type.relation, type.grid, ia::Placement(whole));
}

/// For each label the number of different smaller ones.
std::vector<int64_t> ranks_of(const std::vector<int64_t>& labels) {
  const std::set<int64_t> order(labels.begin(), labels.end());
  std::vector<int64_t> out;
  for (const int64_t label : labels) out.push_back(std::distance(order.begin(), order.find(label)));
  return out;
}

class StrategyEnumerator {
 public:
  StrategyEnumerator(const tra::Plan& plan, const PlacementConstraints& constraints, layouts::PlacementCache& cache,
                     const division::LabelClasses& labels)
      : plan_(plan),
        constraints_(constraints),
        cache_(cache),
        grid_(cache.layouts.grid()),
        objective_(cache.objective),
        coarse_(in_bundles(plan, constraints, grid_)),
        labels_(labels),
        vertices_(vertices_of(plan, constraints, cache, labels)),
        readers_(vertices_.size()) {
    for (size_t v = 0; v < vertices_.size(); ++v) {
      if (vertices_[v].output) continue;
      for (const int64_t operand : vertices_[v].operands) readers_[operand].push_back(static_cast<int64_t>(v));
    }
    for (const auto& output : plan_.outputs()) {
      if (output.tied_input) tied_[output.node.get()].push_back(&*output.tied_input);
    }
  }

  std::vector<Vertex> run() {
    for (Vertex& vertex : vertices_) {
      if (vertex.joined() != nullptr || vertex.call() != nullptr) add_divided_strategies(vertex);
    }
    for (size_t v = 0; v < vertices_.size(); ++v) add_required_layouts(static_cast<int64_t>(v));
    for (size_t v = 0; v < vertices_.size(); ++v) complete(static_cast<int64_t>(v));
    return std::move(vertices_);
  }

 private:
  // --- strategies ---------------------------------------------------------------------------------------------------

  const Layout* placed(const Vertex& vertex, const Dims& split) {
    return cache_.layouts.placed(vertex.relation, division::placement_of(split, vertex.node->type().frontier));
  }

  /// Whether a vertex must divide its work over every axis that its extents allow: a contraction, where work is free.
  bool divides_all(const Vertex& vertex) const {
    if (cost::row_of(objective_).prices_work || constraints_.may_repeat || vertex.joined() == nullptr) return false;
    return vertex.join != nullptr || kernels::table::contracts(vertex.joined()->as<tra::Join>()->kernel);
  }

  /// Whether this division of tuples violates the constraints on the work of `work`.
  bool refused(const tra::Node& work, const std::optional<Dims>& split) const {
    const division::DivisionConstraint* cut = constraints_.work_of(&work);
    if (cut == nullptr) return false;
    const Dims& frontier = work.as<tra::Join>() != nullptr ? work.type().frontier : work.input(0)->type().frontier;
    return !split || !cut->met_by(grid_, frontier, *split);
  }

  std::vector<Dims> divided_by(const std::vector<division::Divisible>& dims, bool divide_all) const {
    return coarse_ ? division::divisions_in_bundles(grid_, dims, divide_all)
                   : division::divisions(grid_, dims, divide_all);
  }

  /// The ways to divide the work of a join or call. Those that meet constraints need not divide all work.
  std::vector<Dims> divisions_of(const Vertex& vertex, const tra::Node& work,
                                 const std::vector<division::KeyDim>& dims) const {
    const division::DivisionConstraint* constraint = vertex.joined() == nullptr ? nullptr : constraints_.work_of(&work);
    if (constraint != nullptr && constraint->axes) return {*constraint->axes};
    Dims extents;
    std::vector<division::Divisible> divisible;
    for (const division::KeyDim& dim : dims) {
      const auto& [operand, at] = dim.at.front();
      extents.push_back(dim.keys);
      divisible.push_back({dim.keys, labels_.of(*work.input(operand))[at]});
    }
    std::vector<Dims> out;
    for (const bool all : {divides_all(vertex), false}) {
      out = divided_by(divisible, all);
      if (constraint == nullptr) break;
      std::erase_if(out, [&](const Dims& split) { return !constraint->met_by(grid_, extents, split); });
      if (!out.empty()) break;
    }
    return out;
  }

  /// Equal joins and calls, with equal operand types and labels in one order, have equal strategies.
  void add_divided_strategies(Vertex& vertex) {
    const tra::Node& work = vertex.joined() != nullptr ? *vertex.joined() : *vertex.node;
    if (vertex.joined() != nullptr && constraints_.work_of(&work) != nullptr) return divide(vertex, work);
    std::vector<int64_t> labels;
    WorkKey key{{}, vertex.operation, {}};
    for (const int64_t operand : vertex.operands) {
      const auto& own = labels_.of(*vertices_[operand].node);
      labels.insert(labels.end(), own.begin(), own.end());
      key.relations.push_back(vertices_[operand].relation);
    }
    key.ranks = ranks_of(labels);
    const auto [at, fresh] = divided_.try_emplace(std::move(key));
    if (fresh) {
      divide(vertex, work);
      at->second = vertex.strategies;
    } else {
      vertex.strategies = at->second;
    }
  }

  /// Adds a strategy for each way to divide the key dimensions of the work. Owners of a dimension are computed on the
  /// largest of its operands' extents.
  void divide(Vertex& vertex, const tra::Node& work) {
    const std::vector<division::KeyDim> dims = division::key_dims(work);
    std::vector<Dims> domains;
    for (const auto& input : work.inputs()) domains.push_back(input->type().frontier);
    for (const division::KeyDim& dim : dims) {
      int64_t domain = 0;
      for (const auto& [operand, at] : dim.at) domain = std::max(domain, domains[operand][at]);
      for (const auto& [operand, at] : dim.at) domains[operand][at] = domain;
    }
    for (const Dims& division : divisions_of(vertex, work, dims)) {
      std::vector<const Layout*> layouts;
      for (size_t i = 0; i < domains.size(); ++i) {
        Dims split;
        for (const int64_t dim : division)
          split.push_back(dim == division::kNothing ? division::kNothing
                                                    : dims[dim].of(i).value_or(division::kNothing));
        layouts.push_back(
            cache_.layouts.find(vertices_[vertex.operands[i]].relation, division::placement_of(split, domains[i])));
      }
      const bool possible = std::find(layouts.begin(), layouts.end(), nullptr) == layouts.end();
      if (possible) add_strategy(vertex, std::move(layouts));
    }
  }

  void add_strategy(Vertex& vertex, std::vector<const Layout*> operands) {
    const layouts::OperatorCost& run = cache_.operator_costs.of(vertex.operation, operands);
    if (run.result != nullptr) vertex.strategies.push_back({std::move(operands), run.result, run.value, run.flops});
  }

  /// Strategies in which one operand of a join has a layout of its own (partials that are not reduced, owners computed
  /// on another domain, scattered) and the other operand moves to meet it.
  void add_strategies_of_operand_layouts(Vertex& vertex, const tra::Node& join) {
    for (const size_t side : {0, 1}) {
      const std::vector<const Layout*> layouts = vertices_[vertex.operands[side]].layouts;
      for (const Layout* layout : layouts) {
        for (const Layout* other : layouts_to_meet(vertex, join, side, layout)) {
          add_strategy_that_meets(vertex, join, side, layout, other);
        }
      }
    }
  }

  /// Strategies in which both operands hold partial values, and so does the result. Moves are priced by placements, not
  /// by what sites hold: so all of both operands must be such that every site has a partial value of each key.
  void add_strategies_of_partials(Vertex& vertex, const tra::Node& join) {
    const auto& op = *join.as<tra::Join>();
    const std::vector<const Layout*> left = vertices_[vertex.operands[0]].layouts;
    const std::vector<const Layout*> right = vertices_[vertex.operands[1]].layouts;
    const auto joins = [&](const Layout* layout) {
      const auto reduction = layout->type.placement.pending_kernel();
      return reduction && kernels::table::joins_partials(op.kernel, *reduction);
    };
    if (std::none_of(left.begin(), left.end(), joins)) return;
    if (!gives_all_partials(vertex.operands[0]) || !gives_all_partials(vertex.operands[1])) return;
    for (const Layout* layout : left) {
      if (!joins(layout)) continue;
      const ia::Placement other = met_by_partials(layout->type.placement, op.left_keys, op.right_keys);
      for (const Layout* meets : right) {
        if (meets->type.placement == other) add_strategy_that_meets(vertex, join, 0, layout, meets);
      }
    }
  }

  /// Whether each strategy of a vertex whose result is pending leaves partial values of all keys.
  bool gives_all_partials(int64_t v) const {
    return std::all_of(vertices_[v].strategies.begin(), vertices_[v].strategies.end(), [](const Strategy& strategy) {
      return !strategy.result->type.placement.pending() || has_all_partials(*strategy.result);
    });
  }

  void add_strategy_that_meets(Vertex& vertex, const tra::Node& join, size_t side, const Layout* layout,
                               const Layout* meets) {
    std::vector<const Layout*> operands{layout, layout};
    operands[1 - side] = meets;
    const layouts::OperatorCost& run = cache_.operator_costs.of(vertex.operation, operands);
    if (run.result == nullptr || refused(join, run.split) || (run.undivided && divides_all(vertex))) return;
    add_layout(vertices_[vertex.operands[1 - side]].layouts, meets);
    add_strategy(vertex, std::move(operands));
  }

  /// The layouts in which the other operand meets this one and for which `vertex` has no strategy yet: split by the
  /// same join keys, else replicated. Where dropping replicas costs something, replicated operands are listed as well.
  std::vector<const Layout*> layouts_to_meet(const Vertex& vertex, const tra::Node& join, size_t side,
                                             const Layout* layout) {
    const auto& op = *join.as<tra::Join>();
    const size_t other = vertices_[vertex.operands[1 - side]].relation;
    const ia::Placement& placement = layout->type.placement;
    const bool replicas_count = !cost::row_of(objective_).drops_replicas_freely;
    std::vector<const Layout*> out;
    if (replicas_count || placement.grid() == nullptr) out.push_back(cache_.layouts.replicated(other));
    if (placement.grid() != nullptr) {
      const Layout* met = cache_.layouts.find(
          other, met_by(placement, side == 0 ? op.left_keys : op.right_keys, side == 0 ? op.right_keys : op.left_keys));
      if (met != nullptr && (out.empty() || met != out[0])) out.push_back(met);
    }
    std::erase_if(out, [&](const Layout* meets) {
      return std::any_of(vertex.strategies.begin(), vertex.strategies.end(), [&](const Strategy& strategy) {
        return strategy.operand_layouts[side]->placement == layout->placement &&
               (!replicas_count || strategy.operand_layouts[1 - side]->placement == meets->placement);
      });
    });
    return out;
  }

  /// Strategies in which both operands of an upsert have one placement, each that its first operand has.
  void add_upsert_strategies(Vertex& vertex) {
    Vertex& updates = vertices_[vertex.operands[1]];
    const std::vector<const Layout*> bases = vertices_[vertex.operands[0]].layouts;
    for (const Layout* base : bases) {
      if (base->type.placement.grid() == nullptr || base->type.placement.pending()) continue;
      const Layout* alike = cache_.layouts.find(updates.relation, base->type.placement);
      if (alike == nullptr || refused(*vertex.node, division::split_of(base->type.placement))) continue;
      add_layout(updates.layouts, alike);
      add_strategy(vertex, {base, alike});
    }
  }

  /// Strategies of an operator of one operand: one for each layout of the operand in which it can run.
  void add_unary_strategies(Vertex& vertex) {
    for (const Layout* operand : vertices_[vertex.operands[0]].layouts) {
      if (!refused(*vertex.node, division::split_of(operand->type.placement))) add_strategy(vertex, {operand});
    }
  }

  /// Whether a replicated start is the best one of an input: no move from there costs anything.
  bool may_start_replicated(const std::string& name) const {
    const cost::ObjectiveRow& objective = cost::row_of(objective_);
    if (!objective.drops_replicas_freely || cache_.cluster.memory_bytes) return false;
    if (objective.needs_cluster && cache_.cluster.profile != nullptr) return false;
    return std::none_of(plan_.outputs().begin(), plan_.outputs().end(),
                        [&](const auto& output) { return output.tied_input == name; });
  }

  void add_starts(Vertex& vertex) {
    const std::string& name = vertex.input()->name;
    const auto named = constraints_.inputs.find(name);
    if (named != constraints_.inputs.end()) {
      vertex.strategies.push_back({{}, cache_.layouts.placed(vertex.relation, named->second)});
      return;
    }
    const auto constraint = constraints_.starts.find(name);
    if (constraint == constraints_.starts.end() && may_start_replicated(name)) {
      std::vector<const Layout*> starts{cache_.layouts.replicated(vertex.relation)};
      for (const PartialPlacement& warm_starts : constraints_.warm_starts) {
        const auto start = warm_starts.inputs.find(name);
        if (start != warm_starts.inputs.end())
          add_layout(starts, cache_.layouts.placed(vertex.relation, start->second));
      }
      for (const Layout* start : starts) vertex.strategies.push_back({{}, start});
      return;
    }
    for (const Layout* layout : vertex.layouts) {
      const auto split = division::split_of(layout->type.placement);
      const bool met = constraint == constraints_.starts.end() ||
                       (split && constraint->second.met_by(grid_, layout->type.relation.frontier, *split));
      if (met) vertex.strategies.push_back({{}, layout});
    }
  }

  // --- layouts of values ---------------------------------------------------------------------------------------------

  /// The reduced placements of a value, and those that joins require.
  void add_required_layouts(int64_t v) {
    Vertex& vertex = vertices_[v];
    if (vertex.output) return;
    const auto add = [&](const ia::Placement& at) {
      add_layout(vertex.layouts, cache_.layouts.placed(vertex.relation, at));
    };
    if (!readers_are_constrained(v)) add_reduced_layouts(vertex);
    for (const int64_t r : readers_[v]) {
      const Vertex& reader = vertices_[r];
      for (size_t i = 0; i < reader.operands.size(); ++i) {
        if (reader.operands[i] != v || (reader.joined() == nullptr && reader.call() == nullptr)) continue;
        for (const Strategy& strategy : reader.strategies) add_layout(vertex.layouts, strategy.operand_layouts[i]);
      }
      const division::DivisionConstraint* cut = constraints_.work_of(reader.node);
      if (reader.joined() == nullptr && reader.call() == nullptr && cut != nullptr && cut->axes)
        add_layout(vertex.layouts, placed(vertex, *cut->axes));
    }
    const auto pin = constraints_.pins.find(vertex.node);
    if (pin != constraints_.pins.end()) add(pin->second);
    add_warm_start_layouts(vertex);
    if (vertex.input() == nullptr) return;
    const auto constraint = constraints_.starts.find(vertex.input()->name);
    if (constraint != constraints_.starts.end() && constraint->second.axes)
      add_layout(vertex.layouts, placed(vertex, *constraint->second.axes));
  }

  /// Whether constraints fix the work of all readers of a value, which are joins: then the value's layouts are those
  /// that they require.
  bool readers_are_constrained(int64_t v) const {
    const Vertex& vertex = vertices_[v];
    if (vertex.input() != nullptr && !constraints_.inputs.contains(vertex.input()->name)) return false;
    const bool ends = std::any_of(plan_.outputs().begin(), plan_.outputs().end(),
                                  [&](const auto& output) { return output.node.get() == vertex.node; });
    return !ends && std::all_of(readers_[v].begin(), readers_[v].end(), [&](int64_t r) {
      return vertices_[r].joined() != nullptr && constraints_.work_of(vertices_[r].joined()) != nullptr;
    });
  }

  void add_reduced_layouts(Vertex& vertex) {
    const relation::RelationType& relation = vertex.node->type();
    const std::vector<int64_t> ranks = ranks_of(labels_.of(*vertex.node));
    const auto [at, fresh] = reduced_.try_emplace({vertex.relation, ranks});
    if (fresh) {
      std::vector<division::Divisible> dims;
      for (int64_t d = 0; d < relation.arity(); ++d) dims.push_back({relation.frontier[d], ranks[d]});
      for (const Dims& division : divided_by(dims, false)) add_layout(at->second, placed(vertex, division));
    }
    for (const Layout* layout : at->second) add_layout(vertex.layouts, layout);
  }

  /// The layouts in which an input starts and tied outputs end, and those that warm starts stage values in.
  void add_warm_start_layouts(Vertex& vertex) {
    std::vector<const std::string*> names;
    const auto tied = tied_.find(vertex.node);
    if (tied != tied_.end()) names = tied->second;
    if (vertex.input() != nullptr) names.push_back(&vertex.input()->name);
    for (const std::string* name : names) add_start(vertex, constraints_.inputs, *name);
    for (const PartialPlacement& warm_starts : constraints_.warm_starts) {
      const auto pin = warm_starts.pins.find(vertex.node);
      if (pin != warm_starts.pins.end())
        add_layout(vertex.layouts, cache_.layouts.placed(vertex.relation, pin->second));
      for (const std::string* name : names) add_start(vertex, warm_starts.inputs, *name);
    }
  }

  void add_start(Vertex& vertex, const InputPlacements& starts, const std::string& name) {
    const auto start = starts.find(name);
    if (start != starts.end()) add_layout(vertex.layouts, cache_.layouts.placed(vertex.relation, start->second));
  }

  /// Strategies that depend on the layouts of operands. Results that no move has reduced are layouts too.
  void complete(int64_t v) {
    Vertex& vertex = vertices_[v];
    if (vertex.output) {
      complete_end(vertex);
      return;
    }
    if (vertex.input() != nullptr) {
      add_starts(vertex);
    } else if (const tra::Node* join = vertex.joined()) {
      add_strategies_of_operand_layouts(vertex, *join);
      add_strategies_of_partials(vertex, *join);
    } else if (vertex.node->as<tra::Upsert>() != nullptr) {
      add_upsert_strategies(vertex);
    } else if (vertex.call() == nullptr) {
      add_unary_strategies(vertex);
    }
    for (const Strategy& strategy : vertex.strategies) add_layout(vertex.layouts, strategy.result);
  }

  /// An output with constraints reads its value in each layout that they allow.
  void complete_end(Vertex& vertex) {
    Vertex& source = vertices_[vertex.operands[0]];
    const division::DivisionConstraint& constraint = constraints_.ends.at(plan_.outputs()[*vertex.output].name);
    const relation::RelationType& relation = vertex.node->type();
    if (constraint.axes) add_layout(source.layouts, placed(vertex, *constraint.axes));
    for (const Layout* layout : source.layouts) {
      const auto split = division::split_of(layout->type.placement);
      if (split && constraint.met_by(grid_, relation.frontier, *split)) vertex.strategies.push_back({{layout}, layout});
    }
  }

  /// What determines the strategies of a join or call.
  struct WorkKey {
    std::vector<int64_t> ranks;  ///< ranks of its labels
    size_t operation;
    std::vector<size_t> relations;  ///< of its operands
    auto operator<=>(const WorkKey&) const = default;
  };

  const tra::Plan& plan_;
  const PlacementConstraints& constraints_;
  layouts::PlacementCache& cache_;
  const ia::Grid& grid_;
  cost::Objective objective_;
  bool coarse_;
  const division::LabelClasses& labels_;
  std::vector<Vertex> vertices_;
  std::map<WorkKey, std::vector<Strategy>> divided_;
  std::map<std::pair<size_t, std::vector<int64_t>>, std::vector<const Layout*>> reduced_;  ///< by relation and ranks
  std::unordered_map<const tra::Node*, std::vector<const std::string*>> tied_;             ///< inputs tied to a value
  std::vector<std::vector<int64_t>> readers_;
};

}  // namespace

std::vector<Vertex> enumerated_vertices(const tra::Plan& plan, const PlacementConstraints& constraints,
                                        layouts::PlacementCache& cache, const division::LabelClasses& labels) {
  return StrategyEnumerator(plan, constraints, cache, labels).run();
}

}  // namespace joinsum::optimizer::model

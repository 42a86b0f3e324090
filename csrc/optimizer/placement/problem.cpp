#include "optimizer/placement/problem.h"

#include <algorithm>
#include <set>

#include "ia/fusion.h"
#include "kernels/table.h"
#include "kernels/typing.h"
#include "optimizer/placement/candidates.h"
#include "optimizer/placement/move_prices.h"
#include "tra/lower.h"

namespace joinsum::optimizer {
namespace {

/// A way to run an operator: where each operand must lie, and what comes out.
struct Mode {
  std::vector<ia::Placement> needs;
  std::optional<ia::PhysicalType> result;
  double value = 0;  ///< of the local work, by the objective
  double flops = 0;
  std::set<int64_t> divided;  ///< labels
};

/// An operator with its ways, or an input with its possible starts; and where its value may be put for its readers.
struct Vertex {
  const tra::Node* node = nullptr;  ///< whose value it is
  const tra::Node* join = nullptr;  ///< below the sum `node`, when both run as one
  std::vector<int64_t> operands;    ///< vertices
  std::set<int64_t> labels;         ///< of the dimensions that it may divide
  std::vector<Mode> modes;
  std::vector<ia::PhysicalType> places;
  MovePrices::Numbers numbers;  ///< of the places
};

/// Adds a type once, by its placement.
void add_place(std::vector<ia::PhysicalType>& places, const ia::PhysicalType& type) {
  const bool known = std::any_of(places.begin(), places.end(),
                                 [&](const ia::PhysicalType& other) { return other.placement == type.placement; });
  if (!known) places.push_back(type);
}

}  // namespace

class PlacementProblem::Builder {
 public:
  Builder(const tra::Plan& plan, const ia::Grid& grid, const InputPlacements& inputs, Objective objective,
          const Cluster& cluster, const Pins& pins)
      : plan_(plan),
        grid_(grid),
        inputs_(inputs),
        pins_(pins),
        objective_(objective),
        cluster_(cluster),
        move_price_(objective, cluster_),
        labels_(plan) {
    find_vertices();
    for (Vertex& vertex : vertices_) {
      if (const auto* join = joined(vertex)) add_join_modes(vertex, *join);
    }
    for (size_t v = 0; v < vertices_.size(); ++v) add_places_wanted(static_cast<int64_t>(v));
    for (size_t v = 0; v < vertices_.size(); ++v) complete(static_cast<int64_t>(v));
    make_tables();
  }

  const Labels& labels() const { return labels_; }

  std::optional<Placed> solve(const std::optional<std::vector<int64_t>>& only, const MinSumLimits& limits) const {
    MinSumProblem problem;
    for (size_t v = 0; v < vertices_.size(); ++v) {
      problem.add_variable(restricted(vertices_[v], mode_costs_[v], only));
      problem.add_variable(place_costs_[v]);
    }
    for (const Table& table : tables_) problem.add_pair(table.first, table.second, table.costs);
    try {
      const MinSumSolution solution = joinsum::optimizer::solve(problem, limits);
      return Placed{lowered(solution.values), solution.lower_bound, solution.exact};
    } catch (const PlanError&) {
      return std::nullopt;
    }
  }

 private:
  struct Table {
    int64_t first;
    int64_t second;
    std::vector<double> costs;
  };
  /// Variables of vertex v.
  static int64_t mode_of(int64_t v) { return 2 * v; }
  static int64_t place_of(int64_t v) { return 2 * v + 1; }

  // --- vertices ------------------------------------------------------------------------------------------------------

  /// Joins whose only reader is a sum that can leave partials, but for pinned ones.
  std::set<const tra::Node*> joins_below_sums() const {
    std::unordered_map<const tra::Node*, int64_t> uses;
    for (const auto& node : plan_.order()) {
      for (const auto& input : node->inputs()) ++uses[input.get()];
    }
    for (const auto& output : plan_.outputs()) ++uses[output.node.get()];
    std::set<const tra::Node*> out;
    for (const auto& node : plan_.order()) {
      const auto* sum = node->as<tra::Aggregate>();
      if (sum == nullptr || node->input(0)->as<tra::Join>() == nullptr) continue;
      const tra::Node* join = node->input(0).get();
      if (uses.at(join) == 1 && kernels::foldable(sum->kernel.first()) && !pins_.contains(join)) out.insert(join);
    }
    return out;
  }

  void find_vertices() {
    const auto inner = joins_below_sums();
    for (const auto& node : plan_.order()) {
      if (inner.contains(node.get())) continue;
      Vertex vertex;
      vertex.node = node.get();
      const bool sums = !node->inputs().empty() && inner.contains(node->input(0).get());
      if (sums) vertex.join = node->input(0).get();
      const tra::Node& reads = sums ? *vertex.join : *node;
      for (const auto& input : reads.inputs()) {
        vertex.operands.push_back(number_.at(input.get()));
        const auto& labels = labels_.of(*input);
        vertex.labels.insert(labels.begin(), labels.end());
      }
      number_[node.get()] = static_cast<int64_t>(vertices_.size());
      vertices_.push_back(std::move(vertex));
    }
  }

  /// The join that a vertex runs, by itself or below a sum.
  static const tra::Node* joined(const Vertex& vertex) {
    if (vertex.join != nullptr) return vertex.join;
    return vertex.node->as<tra::Join>() != nullptr ? vertex.node : nullptr;
  }

  // --- ways to run ---------------------------------------------------------------------------------------------------

  ia::PhysicalType placed(const RelationType& relation, const ia::Placement& placement) const {
    return ia::PhysicalType::placed("optimize", relation, grid_, placement);
  }

  static ia::NodePtr stand_in(const char* name, const ia::PhysicalType& type) { return ia::make_input(name, type); }

  void price(Mode& mode, const ia::NodePtr& node, Fusion fusion) const {
    const NodeCost cost = node_cost(*node, fusion, cluster_);
    mode.value += value_of(cost, objective_);
    mode.flops += static_cast<double>(cost.flops);
  }

  /// Whether a join has to divide its work over every axis that its extents allow.
  bool divides_all(const Vertex& vertex, const tra::Node& join) const {
    if (objective_ == Objective::kSeconds) return false;
    return vertex.join != nullptr || kernels::contracts(join.as<tra::Join>()->kernel);
  }

  void add_join_modes(Vertex& vertex, const tra::Node& join) const {
    const auto& op = *join.as<tra::Join>();
    const RelationType& left = join.input(0)->type();
    const RelationType& right = join.input(1)->type();
    const kernels::JoinKeys on{op.left_keys, op.right_keys};
    const Dims right_position = on.right_position(left.arity(), right.arity());
    const auto& labels = labels_.of(join);
    std::vector<Divisible> dims;
    for (int64_t d = 0; d < join.type().arity(); ++d) dims.push_back({join.type().frontier[d], labels[d]});
    Dims left_domains = left.frontier;
    Dims right_domains = right.frontier;
    for (size_t i = 0; i < op.left_keys.size(); ++i) {
      int64_t& a = left_domains[op.left_keys[i]];
      int64_t& b = right_domains[op.right_keys[i]];
      a = b = std::max(a, b);
    }
    for (const Dims& division : divisions(grid_, dims, divides_all(vertex, join))) {
      Dims left_split;
      Dims right_split;
      Mode mode;
      for (const int64_t dim : division) {
        left_split.push_back(dim >= 0 && dim < left.arity() ? dim : -1);
        right_split.push_back(dim >= 0 ? position_of(right_position, dim).value_or(-1) : -1);
        if (dim >= 0) mode.divided.insert(labels[dim]);
      }
      mode.needs = {placement_of(left_split, left_domains), placement_of(right_split, right_domains)};
      try {
        run_join(vertex, op, placed(left, mode.needs[0]), placed(right, mode.needs[1]), mode);
        vertex.modes.push_back(std::move(mode));
      } catch (const PlanError&) {
      } catch (const KernelError&) {
      }
    }
  }

  /// Gives a mode its result and its price; returns the type of the join itself.
  ia::PhysicalType run_join(const Vertex& vertex, const tra::Join& op, const ia::PhysicalType& left,
                            const ia::PhysicalType& right, Mode& mode) const {
    ia::NodePtr node =
        ia::make(ia::LocalJoin{op.left_keys, op.right_keys, op.kernel}, {stand_in("L", left), stand_in("R", right)});
    const ia::PhysicalType joined = node->type();
    if (vertex.join == nullptr) {
      price(mode, node, Fusion::kNone);
    } else {
      const ia::NodePtr join_node = node;
      node = ia::make(tra::local_operation(*vertex.node), {join_node});
      const auto fused = ia::fused_joins(ia::Plan::make({{"Z", node, std::nullopt}}));
      price(mode, join_node, fusion_of(*join_node, fused));
      price(mode, node, fusion_of(*node, fused));
    }
    mode.result = node->type();
    return joined;
  }

  /// Ways to run a join where an operand lies in a manner of its own (partials that nothing has settled, owners
  /// computed on another domain, scattered): the other one comes to meet it there.
  void add_modes_where_operands_lie(Vertex& vertex, const tra::Node& join) {
    for (const size_t side : {0, 1}) {
      const std::vector<ia::PhysicalType> places = vertices_[vertex.operands[side]].places;
      for (const ia::PhysicalType& place : places) {
        for (const ia::Placement& other : ways_to_meet(vertex, join, side, place.placement)) {
          add_mode_where_lies(vertex, join, side, place, other);
        }
      }
    }
  }

  void add_mode_where_lies(Vertex& vertex, const tra::Node& join, size_t side, const ia::PhysicalType& place,
                           const ia::Placement& meets) {
    Vertex& other = vertices_[vertex.operands[1 - side]];
    Mode mode{{place.placement, place.placement}, std::nullopt, 0, 0, divided_labels(place, *join.input(side))};
    mode.needs[1 - side] = meets;
    try {
      const ia::PhysicalType type = placed(other.node->type(), meets);
      const auto joined =
          run_join(vertex, *join.as<tra::Join>(), side == 0 ? place : type, side == 0 ? type : place, mode);
      if (divides_all(vertex, join) && leaves_undivided(joined)) return;
      add_place(other.places, type);
      vertex.modes.push_back(std::move(mode));
    } catch (const PlanError&) {
    } catch (const KernelError&) {
    }
  }

  /// Where the other operand meets one that is placed so, in ways that `vertex` has not: split by the same join keys,
  /// else whole. To drop replicas costs nothing but under `paper_floats`, which so has whole operands as well.
  std::vector<ia::Placement> ways_to_meet(const Vertex& vertex, const tra::Node& join, size_t side,
                                          const ia::Placement& placement) const {
    const auto& op = *join.as<tra::Join>();
    std::vector<ia::Placement> out{ia::Placement::replicated(grid_)};
    const bool paper = objective_ == Objective::kPaperFloats;
    if (placement.grid() != nullptr) {
      const auto met =
          met_by(placement, side == 0 ? op.left_keys : op.right_keys, side == 0 ? op.right_keys : op.left_keys);
      if (!paper) out.clear();
      if (!paper || !(met == out[0])) out.push_back(met);
    }
    std::erase_if(out, [&](const ia::Placement& other) {
      return std::any_of(vertex.modes.begin(), vertex.modes.end(), [&](const Mode& mode) {
        return mode.needs[side] == placement && (!paper || mode.needs[1 - side] == other);
      });
    });
    return out;
  }

  static ia::Placement met_by(const ia::Placement& placement, const Dims& keys, const Dims& other_keys) {
    ia::GridPlacement out = *placement.grid();
    for (ia::AxisState& state : out.states) {
      const auto* split = std::get_if<ia::Split>(&state);
      const auto key = split != nullptr ? position_of(keys, split->dim) : std::nullopt;
      state = key ? ia::AxisState(ia::Split{other_keys[*key], split->domain}) : ia::Replicated{};
    }
    return out;
  }

  /// Ways to run an operator of one operand: wherever that may lie, if the operator can run there.
  void add_unary_modes(Vertex& vertex) const {
    const ia::Operation operation = tra::local_operation(*vertex.node);
    for (const ia::PhysicalType& operand : vertices_[vertex.operands[0]].places) {
      try {
        const ia::NodePtr node = ia::make(operation, {stand_in("R", operand)});
        Mode mode{{operand.placement}, node->type(), 0, 0, divided_labels(operand, *vertex.node->input(0))};
        price(mode, node, Fusion::kNone);
        vertex.modes.push_back(std::move(mode));
      } catch (const PlanError&) {
      } catch (const KernelError&) {
      }
    }
  }

  std::set<int64_t> divided_labels(const ia::PhysicalType& type, const tra::Node& node) const {
    std::set<int64_t> out;
    for (const int64_t axis : type.placement.axes_in<ia::Split>()) {
      out.insert(labels_.of(node)[std::get<ia::Split>(type.placement.grid()->states[axis]).dim]);
    }
    return out;
  }

  void add_starts(Vertex& vertex) const {
    const auto named = inputs_.find(vertex.node->as<tra::Input>()->name);
    if (named != inputs_.end()) {
      vertex.modes.push_back({{}, placed(vertex.node->type(), named->second), 0, 0, {}});
      return;
    }
    for (const ia::PhysicalType& place : vertex.places) vertex.modes.push_back({{}, place, 0, 0, {}});
  }

  // --- places of values ----------------------------------------------------------------------------------------------

  /// Settled placements of a value, and those that joins want it in.
  void add_places_wanted(int64_t v) {
    Vertex& vertex = vertices_[v];
    const RelationType& relation = vertex.node->type();
    const auto& labels = labels_.of(*vertex.node);
    std::vector<Divisible> dims;
    for (int64_t d = 0; d < relation.arity(); ++d) dims.push_back({relation.frontier[d], labels[d]});
    for (const Dims& division : divisions(grid_, dims, false)) {
      add_place(vertex.places, placed(relation, placement_of(division, relation.frontier)));
    }
    for (const Vertex& reader : vertices_) {
      for (size_t i = 0; i < reader.operands.size(); ++i) {
        if (reader.operands[i] != v || joined(reader) == nullptr) continue;
        for (const Mode& mode : reader.modes) add_place(vertex.places, placed(relation, mode.needs[i]));
      }
    }
    if (const auto* pin = pin_of(*vertex.node)) add_place(vertex.places, placed(relation, *pin));
    if (const auto* start = start_of_tied(*vertex.node)) add_place(vertex.places, placed(relation, *start));
    const auto* input = vertex.node->as<tra::Input>();
    if (input != nullptr && inputs_.contains(input->name))
      add_place(vertex.places, placed(relation, inputs_.at(input->name)));
  }

  const ia::Placement* pin_of(const tra::Node& node) const {
    const auto found = pins_.find(&node);
    return found == pins_.end() ? nullptr : &found->second;
  }

  /// Where an output must lie that is tied to an input with a given start.
  const ia::Placement* start_of_tied(const tra::Node& node) const {
    for (const auto& output : plan_.outputs()) {
      if (output.node.get() != &node || !output.tied_input) continue;
      const auto start = inputs_.find(*output.tied_input);
      if (start != inputs_.end()) return &start->second;
    }
    return nullptr;
  }

  /// Ways that depend on where operands may lie; results that no move has settled are places too.
  void complete(int64_t v) {
    Vertex& vertex = vertices_[v];
    if (vertex.node->as<tra::Input>() != nullptr) {
      add_starts(vertex);
    } else if (const tra::Node* join = joined(vertex)) {
      add_modes_where_operands_lie(vertex, *join);
    } else {
      add_unary_modes(vertex);
    }
    for (const Mode& mode : vertex.modes) add_place(vertex.places, *mode.result);
  }

  // --- tables --------------------------------------------------------------------------------------------------------

  /// Flops decide between plans of one value.
  double weight_of_flops() const {
    double most = 1;
    for (const Vertex& vertex : vertices_) {
      double largest = 0;
      for (const Mode& mode : vertex.modes) largest = std::max(largest, mode.flops);
      most += largest;
    }
    return objective_ == Objective::kSeconds ? 0 : 0.25 / most;
  }

  std::vector<double> restricted(const Vertex& vertex, std::vector<double> costs,
                                 const std::optional<std::vector<int64_t>>& only) const {
    if (!only || joined(vertex) == nullptr) return costs;
    const auto allowed = [&](int64_t label) { return std::find(only->begin(), only->end(), label) != only->end(); };
    if (std::none_of(vertex.labels.begin(), vertex.labels.end(), allowed)) return costs;
    for (size_t m = 0; m < costs.size(); ++m) {
      const auto& divided = vertex.modes[m].divided;
      if (!std::all_of(divided.begin(), divided.end(), allowed)) costs[m] = kForbidden;
    }
    return costs;
  }

  void make_tables() {
    const double weight = weight_of_flops();
    for (const Vertex& vertex : vertices_) {
      std::vector<double> costs;
      for (const Mode& mode : vertex.modes) costs.push_back(mode.value + weight * mode.flops);
      JOINSUM_USER_CHECK(!costs.empty(), "optimize: no placement lets an operator run: operator=",
                         tra::operator_name(vertex.node->operation()), ", type=", vertex.node->type().text());
      mode_costs_.push_back(std::move(costs));
      place_costs_.emplace_back(vertex.places.size(), 0.0);
      const ia::Placement* pin = pin_of(*vertex.node);
      for (size_t i = 0; pin != nullptr && i < vertex.places.size(); ++i) {
        if (vertex.places[i].placement != *pin) place_costs_.back()[i] = kForbidden;
      }
    }
    for (Vertex& vertex : vertices_) vertex.numbers = move_price_.number(vertex.node->type(), vertex.places);
    for (size_t v = 0; v < vertices_.size(); ++v) {
      add_own_table(static_cast<int64_t>(v));
      for (size_t i = 0; i < vertices_[v].operands.size(); ++i) add_edge_table(static_cast<int64_t>(v), i);
    }
    for (const auto& output : plan_.outputs()) add_output(output);
  }

  /// From what an operator leaves to where the value is put.
  void add_own_table(int64_t v) {
    const Vertex& vertex = vertices_[v];
    std::vector<double> costs;
    for (const Mode& mode : vertex.modes) {
      const auto row = prices_from(v, *mode.result);
      costs.insert(costs.end(), row.begin(), row.end());
    }
    tables_.push_back({mode_of(v), place_of(v), std::move(costs)});
  }

  /// From where a value is put to where a reader needs it. Of an input with one start, also straight from there.
  void add_edge_table(int64_t v, size_t operand) {
    const Vertex& reader = vertices_[v];
    const int64_t u = reader.operands[operand];
    const Vertex& source = vertices_[u];
    const bool fixed =
        source.node->as<tra::Input>() != nullptr && source.modes.size() == 1 && pin_of(*source.node) == nullptr;
    std::vector<size_t> needs;
    for (const Mode& mode : reader.modes) needs.push_back(place_in(source, mode.needs[operand]));
    std::vector<double> straight(source.places.size(), kForbidden);
    if (fixed) straight = prices_from(u, *source.modes[0].result);
    std::vector<double> costs;
    for (size_t i = 0; i < source.places.size(); ++i) {
      for (const size_t need : needs) costs.push_back(std::min(price_between(u, i, need), straight[need]));
    }
    tables_.push_back({place_of(u), mode_of(v), std::move(costs)});
  }

  /// Of moves from what an operator leaves to each place.
  std::vector<double> prices_from(int64_t v, const ia::PhysicalType& made) {
    const auto& places = vertices_[v].places;
    const size_t at = place_in(vertices_[v], made.placement);
    const bool known = lie_alike(made, places[at]);
    std::vector<double> out;
    for (size_t i = 0; i < places.size(); ++i) {
      out.push_back(known ? price_between(v, at, i) : move_price_(made, places[i]));
    }
    return out;
  }

  double price_between(int64_t v, size_t from, size_t to) {
    return move_price_.between(vertices_[v].numbers, from, to);
  }

  static size_t place_in(const Vertex& vertex, const ia::Placement& placement) {
    const auto at = std::find_if(vertex.places.begin(), vertex.places.end(),
                                 [&](const ia::PhysicalType& type) { return type.placement == placement; });
    return static_cast<size_t>(at - vertex.places.begin());
  }

  /// An output is settled, and a tied one ends where its input starts.
  void add_output(const tra::Plan::Output& output) {
    const int64_t v = number_.at(output.node.get());
    const Vertex& vertex = vertices_[v];
    for (size_t i = 0; i < vertex.places.size(); ++i) {
      if (vertex.places[i].placement.pending()) place_costs_[v][i] = kForbidden;
    }
    if (!output.tied_input) return;
    for (size_t u = 0; u < vertices_.size(); ++u) {
      const Vertex& input = vertices_[u];
      const auto* op = input.node->as<tra::Input>();
      if (op == nullptr || op->name != *output.tied_input || static_cast<int64_t>(u) == v) continue;
      std::vector<double> costs;
      for (const ia::PhysicalType& place : vertex.places) {
        for (const Mode& start : input.modes) costs.push_back(move_price_(place, *start.result));
      }
      tables_.push_back({place_of(v), mode_of(static_cast<int64_t>(u)), std::move(costs)});
    }
  }

  // --- the plan of a solution ----------------------------------------------------------------------------------------

  ia::Plan lowered(const std::vector<int64_t>& values) const {
    std::vector<ia::NodePtr> made;  // what readers may take it from: of a pinned value, where it was put
    std::vector<ia::NodePtr> put;
    std::map<std::string, ia::Placement> starts;
    for (size_t v = 0; v < vertices_.size(); ++v) {
      const Vertex& vertex = vertices_[v];
      const Mode& mode = vertex.modes[values[mode_of(static_cast<int64_t>(v))]];
      std::vector<ia::NodePtr> operands;
      for (size_t i = 0; i < vertex.operands.size(); ++i) {
        operands.push_back(brought(made[vertex.operands[i]], put[vertex.operands[i]], mode.needs[i]));
      }
      made.push_back(operator_node(vertex, mode, std::move(operands)));
      if (const auto* input = vertex.node->as<tra::Input>()) starts.emplace(input->name, mode.result->placement);
      const ia::PhysicalType& place = vertex.places[values[place_of(static_cast<int64_t>(v))]];
      put.push_back(move_to(made.back(), place.placement));
      if (pin_of(*vertex.node) != nullptr) made.back() = put.back();
    }
    std::vector<ia::Plan::Output> outputs;
    for (const auto& output : plan_.outputs()) {
      const int64_t v = number_.at(output.node.get());
      ia::NodePtr node = put[v];
      if (output.tied_input) node = brought(made[v], put[v], starts.at(*output.tied_input));
      outputs.push_back({output.name, std::move(node), output.tied_input});
    }
    return ia::Plan::make(std::move(outputs));
  }

  ia::NodePtr operator_node(const Vertex& vertex, const Mode& mode, std::vector<ia::NodePtr> operands) const {
    if (const auto* input = vertex.node->as<tra::Input>()) return ia::make_input(input->name, *mode.result);
    if (vertex.join == nullptr) return ia::make(tra::local_operation(*vertex.node), std::move(operands));
    const ia::NodePtr join = ia::make(tra::local_operation(*vertex.join), std::move(operands));
    return ia::make(tra::local_operation(*vertex.node), {join});
  }

  /// The value where it is needed, from what is cheaper: where it was made, or where it was put.
  ia::NodePtr brought(const ia::NodePtr& made, const ia::NodePtr& put, const ia::Placement& need) const {
    if (made->type().placement == need) return made;
    if (put->type().placement == need) return put;
    if (made->type().placement.pending() || made == put) return move_to(put, need);
    ia::PhysicalType target = placed(made->type().relation, need);
    const bool straight = move_price_(made->type(), target) < move_price_(put->type(), target);
    return move_to(straight ? made : put, need);
  }

  const tra::Plan plan_;
  ia::Grid grid_;
  InputPlacements inputs_;
  Pins pins_;
  Objective objective_;
  Cluster cluster_;
  MovePrices move_price_;
  Labels labels_;
  std::vector<Vertex> vertices_;
  std::unordered_map<const tra::Node*, int64_t> number_;
  std::vector<std::vector<double>> mode_costs_;
  std::vector<std::vector<double>> place_costs_;
  std::vector<Table> tables_;
};

PlacementProblem::PlacementProblem(const tra::Plan& plan, const ia::Grid& grid, const InputPlacements& inputs,
                                   Objective objective, const Cluster& cluster, const Pins& pins)
    : builder_(std::make_unique<Builder>(plan, grid, inputs, objective, cluster, pins)) {}

PlacementProblem::~PlacementProblem() = default;

const Labels& PlacementProblem::labels() const { return builder_->labels(); }

std::optional<Placed> PlacementProblem::solve(const std::optional<std::vector<int64_t>>& only,
                                              const MinSumLimits& limits) const {
  return builder_->solve(only, limits);
}

}  // namespace joinsum::optimizer

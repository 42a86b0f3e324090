#include "optimizer/placement/problem.h"

#include <algorithm>

#include "tra/lower.h"

namespace joinsum::optimizer {
namespace {

/// Layouts made times layouts that a value may be put in, beyond which only where it is put is chosen: together of all
/// values, but at least and at most of one.
constexpr size_t kStatesOfAll = 15000;
constexpr size_t kFewestStates = 150;
constexpr size_t kMostStates = 2500;

/// Moves of nodes, each to a target once.
class Moves {
 public:
  ia::NodePtr move(const ia::NodePtr& node, const ia::Placement& target) {
    auto& moved = moved_[node.get()];
    for (const ia::NodePtr& known : moved) {
      if (known->type().placement == target) return known;
    }
    moved.push_back(move_to(node, target));
    return moved.back();
  }

 private:
  std::unordered_map<const ia::Node*, std::vector<ia::NodePtr>> moved_;
};

/// Of the site that holds most.
double busiest_bytes(const ia::PhysicalType& type) {
  int64_t most = 0;
  for (int64_t site = 0; site < type.sites(); ++site) most = std::max(most, type.bytes(site));
  return static_cast<double>(most);
}

/// Where a value may be taken from: where it was made, and where it was put; equal if it stays.
struct State {
  std::optional<size_t> made;  ///< nothing: it is taken from where it was put
  size_t put = 0;
};

struct Table {
  int64_t first;
  int64_t second;
  std::vector<double> costs;
};

}  // namespace

class PlacementProblem::Builder {
 public:
  Builder(const tra::Plan& plan, const ia::Grid& grid, const PlacementDemands& demands, Objective objective,
          const Cluster& cluster)
      : plan_(plan),
        grid_(grid),
        demands_(demands),
        objective_(objective),
        cluster_(cluster),
        move_price_(objective, cluster_),
        labels_(plan_),
        vertices_(Ways(plan_, grid_, demands_, objective_, cluster_, labels_).run()) {
    for (size_t v = 0; v < vertices_.size(); ++v) {
      if (!vertices_[v].output) number_[vertices_[v].node] = static_cast<int64_t>(v);
    }
    make_costs();
    for (size_t v = 0; v < vertices_.size(); ++v) make_states(static_cast<int64_t>(v));
    make_tables();
  }

  /// The same with moves that readers may share charged to each of them in part, so that no plan costs less than its
  /// optimum: a value whose layouts are too many to choose from stays where it is made, and each of k readers pays 1/k
  /// of what brings it there.
  void relax() {
    for (size_t v = 0; v < vertices_.size(); ++v) {
      if (whole_[v]) continue;
      states_[v].clear();
      for (const size_t place : made_[v]) states_[v].push_back({place, place});
      state_costs_[v].assign(states_[v].size(), 0.0);
      share_[v] = 1.0 / static_cast<double>(readers_of(static_cast<int64_t>(v)));
    }
    tables_.clear();
    make_tables();
  }

  bool whole() const {
    return std::all_of(whole_.begin(), whole_.end(), [](bool whole) { return whole; });
  }

  const Labels& labels() const { return labels_; }

  double bound(const MinSumLimits& limits) const {
    return joinsum::optimizer::solve(problem_of({}), limits).lower_bound;
  }

  std::optional<Placed> solve(const std::optional<std::vector<int64_t>>& only, const MinSumLimits& limits) const {
    try {
      const MinSumSolution solution = joinsum::optimizer::solve(problem_of(only), limits);
      Placed out{{}, solution.lower_bound, solution.exact};
      out.plan = lowered(solution.values, out.nodes);
      return out;
    } catch (const PlanError&) {
      return std::nullopt;
    }
  }

 private:
  MinSumProblem problem_of(const std::optional<std::vector<int64_t>>& only) const {
    MinSumProblem problem;
    for (size_t v = 0; v < vertices_.size(); ++v) {
      problem.add_variable(restricted(vertices_[v], mode_costs_[v], only));
      problem.add_variable(state_costs_[v]);
    }
    for (const Table& table : tables_) problem.add_pair(table.first, table.second, table.costs);
    return problem;
  }

  /// Variables of vertex v.
  static int64_t mode_of(int64_t v) { return 2 * v; }
  static int64_t state_of(int64_t v) { return 2 * v + 1; }

  // --- costs of ways -------------------------------------------------------------------------------------------------

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

  void make_costs() {
    const double weight = weight_of_flops();
    for (Vertex& vertex : vertices_) {
      std::vector<double> costs;
      for (const Mode& mode : vertex.modes) {
        const double kept = vertex.output ? 0 : demands_.byte_price * busiest_bytes(*mode.result);
        costs.push_back(mode.value + weight * mode.flops + kept);
      }
      JOINSUM_USER_CHECK(!costs.empty(), "optimize: no placement lets an operator run: operator=",
                         tra::operator_name(vertex.node->operation()), ", type=", vertex.node->type().text());
      mode_costs_.push_back(std::move(costs));
      numbers_.push_back(move_price_.number(vertex.node->type(), vertex.places));
    }
  }

  std::vector<double> restricted(const Vertex& vertex, std::vector<double> costs,
                                 const std::optional<std::vector<int64_t>>& only) const {
    if (!only || vertex.joined() == nullptr) return costs;
    const auto allowed = [&](int64_t label) { return std::find(only->begin(), only->end(), label) != only->end(); };
    if (std::none_of(vertex.labels.begin(), vertex.labels.end(), allowed)) return costs;
    for (size_t m = 0; m < costs.size(); ++m) {
      const auto& divided = vertex.modes[m].divided;
      if (!std::all_of(divided.begin(), divided.end(), allowed)) costs[m] = kForbidden;
    }
    return costs;
  }

  // --- where values may be taken from --------------------------------------------------------------------------------

  const ia::Placement* pin_of(const Vertex& vertex) const {
    const auto found = demands_.pins.find(vertex.node);
    return found == demands_.pins.end() || vertex.output ? nullptr : &found->second;
  }

  /// Operands and outputs that take a value; an output that is tied or told where to end is none but that end.
  int64_t readers_of(int64_t v) const {
    int64_t count = 0;
    for (const Vertex& vertex : vertices_) count += std::count(vertex.operands.begin(), vertex.operands.end(), v);
    for (const auto& output : plan_.outputs()) {
      if (output.node.get() == vertices_[v].node && !demands_.ends.contains(output.name)) count += 2;
    }
    return count;
  }

  void make_states(int64_t v) {
    const Vertex& vertex = vertices_[v];
    auto& states = states_.emplace_back();
    auto& made = made_.emplace_back();
    whole_.push_back(true);
    share_.push_back(1);
    if (vertex.output) {
      states.push_back({std::nullopt, 0});
      state_costs_.push_back({0});
      return;
    }
    for (const Mode& mode : vertex.modes) {
      const size_t place = vertex.place_in(mode.result->placement);
      if (std::find(made.begin(), made.end(), place) == made.end()) made.push_back(place);
    }
    const size_t most = std::clamp(kStatesOfAll / vertices_.size(), kFewestStates, kMostStates);
    const bool apart = objective_ != Objective::kPaperFloats && pin_of(vertex) == nullptr;
    if (apart && readers_of(v) <= 1) {
      for (const size_t place : made) states.push_back({place, place});
    } else if (apart && made.size() * vertex.places.size() <= most) {
      for (const size_t place : made) add_states(v, place, states);
    } else {
      for (size_t place = 0; place < vertex.places.size(); ++place) states.push_back({std::nullopt, place});
      whole_.back() = !apart;
    }
    state_costs_.emplace_back(states.size(), 0.0);
    for (size_t i = 0; demands_.byte_price > 0 && i < states.size(); ++i) {
      if (states[i].made != states[i].put)
        state_costs_.back()[i] = demands_.byte_price * busiest_bytes(vertex.places[states[i].put]);
    }
    const ia::Placement* pin = pin_of(vertex);
    for (size_t i = 0; pin != nullptr && i < states.size(); ++i) {
      if (vertex.places[states[i].put].placement != *pin) state_costs_.back()[i] = kForbidden;
    }
  }

  /// A value stays where it is made, or is also put where a move takes it that costs something.
  void add_states(int64_t v, size_t made, std::vector<State>& states) {
    const auto& places = vertices_[v].places;
    states.push_back({made, made});
    for (size_t put = 0; put < places.size(); ++put) {
      if (put == made || places[put].placement.pending()) continue;
      const double price = price_between(v, made, put);
      if (price < kForbidden && (price > 0 || places[made].placement.pending())) states.push_back({made, put});
    }
  }

  // --- tables --------------------------------------------------------------------------------------------------------

  void make_tables() {
    for (size_t v = 0; v < vertices_.size(); ++v) {
      if (!vertices_[v].output) add_own_table(static_cast<int64_t>(v));
      for (size_t i = 0; i < vertices_[v].operands.size(); ++i) add_edge_table(static_cast<int64_t>(v), i);
    }
    for (const auto& output : plan_.outputs()) {
      if (!demands_.ends.contains(output.name)) add_output(output);
    }
  }

  /// From what an operator leaves to where the value is put.
  void add_own_table(int64_t v) {
    const Vertex& vertex = vertices_[v];
    std::vector<double> costs;
    for (const Mode& mode : vertex.modes) {
      const size_t at = vertex.place_in(mode.result->placement);
      for (const State& state : states_[v]) {
        const bool fits = !state.made || *state.made == at;
        costs.push_back(fits ? price_from(v, *mode.result, at, state.put) : kForbidden);
      }
    }
    tables_.push_back({mode_of(v), state_of(v), std::move(costs)});
  }

  /// From where a value lies to where a reader needs it. Of an input with one start, also straight from there.
  void add_edge_table(int64_t v, size_t operand) {
    const Vertex& reader = vertices_[v];
    const int64_t u = reader.operands[operand];
    const Vertex& source = vertices_[u];
    std::vector<size_t> needs;
    for (const Mode& mode : reader.modes) needs.push_back(source.place_in(mode.needs[operand]));
    std::optional<size_t> start;
    if (source.input() != nullptr && source.modes.size() == 1 && pin_of(source) == nullptr)
      start = source.place_in(source.modes[0].result->placement);
    std::vector<double> costs;
    for (const State& state : states_[u]) {
      for (const size_t need : needs) {
        double cost = price_between(u, state.put, need);
        if (const auto made = state.made ? state.made : start) cost = std::min(cost, price_between(u, *made, need));
        costs.push_back(share_[u] * cost);
      }
    }
    tables_.push_back({state_of(u), mode_of(v), std::move(costs)});
  }

  double price_from(int64_t v, const ia::PhysicalType& made, size_t at, size_t put) {
    const auto& places = vertices_[v].places;
    return lie_alike(made, places[at]) ? price_between(v, at, put) : move_price_(made, places[put]);
  }

  double price_between(int64_t v, size_t from, size_t to) { return move_price_.between(numbers_[v], from, to); }

  /// An output is settled, and a tied one ends where its input starts.
  void add_output(const tra::Plan::Output& output) {
    const int64_t v = number_.at(output.node.get());
    const Vertex& vertex = vertices_[v];
    for (size_t i = 0; i < states_[v].size() && share_[v] == 1; ++i) {
      if (vertex.places[states_[v][i].put].placement.pending()) state_costs_[v][i] = kForbidden;
    }
    if (!output.tied_input || share_[v] < 1) return;
    for (size_t u = 0; u < vertices_.size(); ++u) {
      const Vertex& input = vertices_[u];
      if (input.output || input.input() == nullptr || input.input()->name != *output.tied_input) continue;
      if (static_cast<int64_t>(u) == v) continue;
      std::vector<double> costs;
      for (const State& state : states_[v]) {
        for (const Mode& start : input.modes) {
          double cost = move_price_(vertex.places[state.put], *start.result);
          if (state.made) cost = std::min(cost, move_price_(vertex.places[*state.made], *start.result));
          costs.push_back(cost);
        }
      }
      tables_.push_back({state_of(v), mode_of(static_cast<int64_t>(u)), std::move(costs)});
    }
  }

  // --- the plan of a solution ----------------------------------------------------------------------------------------

  ia::Plan lowered(const std::vector<int64_t>& values, std::unordered_map<const tra::Node*, ia::NodePtr>& nodes) const {
    std::vector<ia::NodePtr> made;  // what readers may take it from: of a pinned value, where it was put
    std::vector<ia::NodePtr> put;
    Moves moves;
    std::map<std::string, ia::Placement> starts;
    std::vector<ia::Plan::Output> outputs;
    for (const auto& output : plan_.outputs()) outputs.push_back({output.name, nullptr, output.tied_input});
    for (size_t v = 0; v < vertices_.size(); ++v) {
      const Vertex& vertex = vertices_[v];
      const Mode& mode = vertex.modes[values[mode_of(static_cast<int64_t>(v))]];
      std::vector<ia::NodePtr> operands;
      for (size_t i = 0; i < vertex.operands.size(); ++i) {
        operands.push_back(brought(made[vertex.operands[i]], put[vertex.operands[i]], mode.needs[i], moves));
      }
      if (vertex.output) {
        outputs[*vertex.output].node = operands[0];
        continue;
      }
      const auto* input = vertex.input();
      made.push_back(input != nullptr ? ia::make_input(input->name, start_of(static_cast<int64_t>(v), values))
                                      : operator_node(vertex, std::move(operands)));
      nodes[vertex.node] = made.back();
      if (vertex.join != nullptr) nodes[vertex.join] = made.back()->input(0);
      if (input != nullptr) starts.emplace(input->name, made.back()->type().placement);
      const State& state = states_[v][values[state_of(static_cast<int64_t>(v))]];
      const bool stays = state.made == state.put;
      put.push_back(stays ? made.back() : moves.move(made.back(), vertex.places[state.put].placement));
      if (pin_of(vertex) != nullptr) made.back() = put.back();
    }
    for (auto& output : outputs) {
      if (output.node != nullptr) continue;
      const int64_t v = number_.at(plan_.outputs()[&output - outputs.data()].node.get());
      output.node = output.tied_input ? brought(made[v], put[v], starts.at(*output.tied_input), moves) : put[v];
    }
    return ia::Plan::make(std::move(outputs));
  }

  /// Where an input starts: one that may start whole on every site starts where all its readers need it, if that is
  /// one place.
  ia::PhysicalType start_of(int64_t v, const std::vector<int64_t>& values) const {
    const Vertex& vertex = vertices_[v];
    const ia::PhysicalType& start = *vertex.modes[values[mode_of(v)]].result;
    const std::string& name = vertex.input()->name;
    if (demands_.inputs.contains(name) || demands_.starts.contains(name) || !start.placement.fully_replicated() ||
        objective_ == Objective::kPaperFloats) {
      return start;
    }
    const ia::Placement* need = nullptr;
    for (const auto& output : plan_.outputs()) {
      if (output.node.get() == vertex.node || output.tied_input == name) return start;
    }
    for (size_t r = 0; r < vertices_.size(); ++r) {
      const Mode& mode = vertices_[r].modes[values[mode_of(static_cast<int64_t>(r))]];
      for (size_t i = 0; i < vertices_[r].operands.size(); ++i) {
        if (vertices_[r].operands[i] != v) continue;
        if (need != nullptr && *need != mode.needs[i]) return start;
        need = &mode.needs[i];
      }
    }
    return need == nullptr ? start : vertex.places[vertex.place_in(*need)];
  }

  ia::NodePtr operator_node(const Vertex& vertex, std::vector<ia::NodePtr> operands) const {
    if (vertex.join == nullptr) return ia::make(tra::local_operation(*vertex.node), std::move(operands));
    const ia::NodePtr join = ia::make(tra::local_operation(*vertex.join), std::move(operands));
    return ia::make(tra::local_operation(*vertex.node), {join});
  }

  /// The value where it is needed, from what is cheaper: where it was made, or where it was put.
  ia::NodePtr brought(const ia::NodePtr& made, const ia::NodePtr& put, const ia::Placement& need, Moves& moves) const {
    if (made->type().placement == need) return made;
    if (put->type().placement == need) return put;
    if (made == put) return moves.move(put, need);
    const ia::PhysicalType target = ia::PhysicalType::placed("optimize", made->type().relation, grid_, need);
    const bool straight = move_price_(made->type(), target) < move_price_(put->type(), target);
    return moves.move(straight ? made : put, need);
  }

  const tra::Plan plan_;
  ia::Grid grid_;
  PlacementDemands demands_;
  Objective objective_;
  Cluster cluster_;
  MovePrices move_price_;
  Labels labels_;
  std::vector<Vertex> vertices_;
  std::unordered_map<const tra::Node*, int64_t> number_;
  std::vector<MovePrices::Numbers> numbers_;
  std::vector<std::vector<State>> states_;
  std::vector<std::vector<size_t>> made_;  ///< places in which a value is made
  std::vector<bool> whole_;                ///< whether the states of a value are all that there are
  std::vector<double> share_;              ///< of a move that each reader of a value pays
  std::vector<std::vector<double>> mode_costs_;
  std::vector<std::vector<double>> state_costs_;
  std::vector<Table> tables_;
};

PlacementProblem::PlacementProblem(const tra::Plan& plan, const ia::Grid& grid, const PlacementDemands& demands,
                                   Objective objective, const Cluster& cluster)
    : builder_(std::make_unique<Builder>(plan, grid, demands, objective, cluster)) {}

PlacementProblem::~PlacementProblem() = default;

const Labels& PlacementProblem::labels() const { return builder_->labels(); }

bool PlacementProblem::whole() const { return builder_->whole(); }

double PlacementProblem::bound(const MinSumLimits& limits) {
  builder_->relax();
  return builder_->bound(limits);
}

std::optional<Placed> PlacementProblem::solve(const std::optional<std::vector<int64_t>>& only,
                                              const MinSumLimits& limits) const {
  return builder_->solve(only, limits);
}

}  // namespace joinsum::optimizer

#include "optimizer/placement/problem.h"

#include <algorithm>
#include <bit>
#include <mutex>

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
  const Place* made = nullptr;  ///< null: it is taken from where it was put
  const Place* put = nullptr;
};

struct Table {
  int64_t first;
  int64_t second;
  MinSumProblem::Entries costs;
};

/// What a table's costs follow from: layouts, and other numbers.
class TableKey {
 public:
  void add(const Place* place) { words_.push_back(reinterpret_cast<std::uintptr_t>(place)); }
  void add(double number) { words_.push_back(std::bit_cast<uint64_t>(number)); }
  void end() { words_.push_back(kEnd); }
  bool operator==(const TableKey&) const = default;
  struct Hash {
    size_t operator()(const TableKey& key) const {
      uint64_t out = key.words_.size();
      for (const uint64_t word : key.words_) out = (out ^ (word >> 4)) * 0x9E3779B97F4A7C15ULL;
      return out;
    }
  };

 private:
  static constexpr uint64_t kEnd = 1;  // no place's address
  std::vector<uint64_t> words_;
};

}  // namespace

class PlacementProblem::Builder {
 public:
  Builder(const tra::Plan& plan, const PlacementDemands& demands, std::shared_ptr<PlacementMemory> memory)
      : plan_(plan),
        demands_(demands),
        memory_(std::move(memory)),
        turn_(memory_->turn),
        objective_(memory_->objective),
        labels_(plan_),
        vertices_(Ways(plan_, demands_, *memory_, labels_).run()) {
    for (size_t v = 0; v < vertices_.size(); ++v) {
      if (!vertices_[v].output) number_[vertices_[v].node] = static_cast<int64_t>(v);
    }
    count_readers();
    make_costs();
    for (size_t v = 0; v < vertices_.size(); ++v) make_states(static_cast<int64_t>(v));
    make_tables();
  }

  /// The same with moves that readers may share charged to each of them in part, so that no plan costs less than its
  /// optimum: a value whose layouts are too many to choose from stays where it is made, and its readers pay shares of
  /// what brings it to them, which add up to 1. Who pays most in the solution `values` has the largest share.
  void relax(const std::vector<int64_t>& values) {
    set_shares(values);
    for (size_t v = 0; v < vertices_.size(); ++v) {
      if (whole_[v]) continue;
      states_[v].clear();
      state_costs_[v].clear();
      for (const Place* place : made_[v]) {
        states_[v].push_back({place, place});
        state_costs_[v].push_back(ends_[v] > 0 ? end_shares_[v] * settling(v, place) : 0);
      }
    }
    relaxed_ = true;
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
      Placed out{{}, solution.lower_bound, solution.exact, {}, solution.values};
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
        const double kept = vertex.output ? 0 : demands_.byte_price * busiest_bytes(mode.result->type);
        costs.push_back(mode.value + weight * mode.flops + kept);
      }
      JOINSUM_USER_CHECK(!costs.empty(), "optimize: no placement lets an operator run: operator=",
                         tra::operator_name(vertex.node->operation()), ", type=", vertex.node->type().text());
      mode_costs_.push_back(std::move(costs));
    }
  }

  std::vector<double> restricted(const Vertex& vertex, std::vector<double> costs,
                                 const std::optional<std::vector<int64_t>>& only) const {
    if (!only || vertex.joined() == nullptr) return costs;
    const auto allowed = [&](int64_t label) { return std::find(only->begin(), only->end(), label) != only->end(); };
    if (std::none_of(vertex.labels.begin(), vertex.labels.end(), allowed)) return costs;
    for (size_t m = 0; m < costs.size(); ++m) {
      const auto divided = divided_labels(vertex, vertex.modes[m]);
      if (!std::all_of(divided.begin(), divided.end(), allowed)) costs[m] = kForbidden;
    }
    return costs;
  }

  /// Labels of the dimensions of a vertex's operands that a mode divides.
  std::vector<int64_t> divided_labels(const Vertex& vertex, const Mode& mode) const {
    std::vector<int64_t> out;
    for (size_t i = 0; i < mode.needs.size(); ++i) {
      const ia::Placement& need = mode.needs[i]->type.placement;
      const auto& labels = labels_.of(*vertices_[vertex.operands[i]].node);
      for (const int64_t axis : need.axes_in<ia::Split>())
        out.push_back(labels[std::get<ia::Split>(need.grid()->states[axis]).dim]);
    }
    return out;
  }

  // --- where values may be taken from --------------------------------------------------------------------------------

  const ia::Placement* pin_of(const Vertex& vertex) const {
    const auto found = demands_.pins.find(vertex.node);
    return found == demands_.pins.end() || vertex.output ? nullptr : &found->second;
  }

  /// Operands that take each value, and outputs that end where they like.
  void count_readers() {
    readers_.resize(vertices_.size());
    ends_.resize(vertices_.size());
    tied_.resize(vertices_.size());
    for (const Vertex& vertex : vertices_) {
      for (const int64_t operand : vertex.operands) ++readers_[operand];
    }
    for (const auto& output : plan_.outputs()) {
      if (demands_.ends.contains(output.name)) continue;
      ++ends_[number_.at(output.node.get())];
      if (output.tied_input) tied_[number_.at(output.node.get())] = true;
    }
  }

  double kept(const Place* put) const {
    return demands_.byte_price > 0 ? demands_.byte_price * busiest_bytes(put->type) : 0;
  }

  void make_states(int64_t v) {
    const Vertex& vertex = vertices_[v];
    auto& states = states_.emplace_back();
    auto& made = made_.emplace_back();
    whole_.push_back(true);
    shares_.emplace_back(vertex.operands.size(), 1.0);
    end_shares_.push_back(1);
    if (vertex.output) {
      states.push_back({});
      state_costs_.push_back({0});
      return;
    }
    for (const Mode& mode : vertex.modes) {
      const Place* place = vertex.lying(mode.result);
      if (std::find(made.begin(), made.end(), place) == made.end()) made.push_back(place);
    }
    const size_t most = std::clamp(kStatesOfAll / vertices_.size(), kFewestStates, kMostStates);
    const bool apart = objective_ != Objective::kPaperFloats && pin_of(vertex) == nullptr;
    if (apart && readers_[v] + 2 * ends_[v] <= 1) {
      for (const Place* place : made) states.push_back({place, place});
    } else if (apart && readers_[v] == 0 && !tied_[v]) {
      for (const Place* place : made) states.push_back({place, settled_from(v, place)});
    } else if (apart && made.size() * vertex.places.size() <= most) {
      for (const Place* place : made) add_states(v, place, states);
      // Two readers that are brought to one more place share the move to it, which no state says.
      whole_.back() = readers_[v] + ends_[v] <= 2;
    } else {
      for (const Place* place : vertex.places) states.push_back({nullptr, place});
      whole_.back() = !apart;
    }
    add_state_costs(v);
  }

  void add_state_costs(int64_t v) {
    auto& costs = state_costs_.emplace_back();
    const ia::Placement* pin = pin_of(vertices_[v]);
    for (const State& state : states_[v]) {
      const bool allowed = pin == nullptr || state.put->type.placement == *pin;
      costs.push_back(!allowed ? kForbidden : state.made == state.put ? 0 : kept(state.put));
    }
  }

  /// Where a value that nothing reads is best put, if it is made there.
  const Place* settled_from(int64_t v, const Place* made) {
    if (!made->type.placement.pending()) return made;
    const Place* best = made;
    double least = kForbidden;
    for (const Place* put : vertices_[v].places) {
      const double cost = put->type.placement.pending() ? kForbidden : move(*made, *put) + kept(put);
      if (cost < least) best = put;
      least = std::min(least, cost);
    }
    return best;
  }

  /// What a reader pays of a move that others may share, whatever it pays in one solution.
  static constexpr double kLeastShare = 0.5;

  double settling(int64_t v, const Place* made) { return move(*made, *settled_from(v, made)); }

  void set_shares(const std::vector<int64_t>& values) {
    const auto made = [&](int64_t v) { return vertices_[v].lying(vertices_[v].modes[values[mode_of(v)]].result); };
    std::vector<double> paid(vertices_.size(), 0);
    for (size_t v = 0; v < vertices_.size(); ++v) {
      const Mode& mode = vertices_[v].modes[values[mode_of(static_cast<int64_t>(v))]];
      for (size_t i = 0; i < shares_[v].size(); ++i) {
        const int64_t u = vertices_[v].operands[i];
        if (whole_[u]) continue;
        const double cost = move(*made(u), *mode.needs[i]);
        paid[u] += shares_[v][i] = cost < kForbidden ? cost : 0;
      }
      if (!whole_[v] && ends_[v] > 0)
        paid[v] += end_shares_[v] = settling(static_cast<int64_t>(v), made(static_cast<int64_t>(v)));
    }
    const auto share = [&](int64_t u, double& now) {
      const double equal = 1.0 / static_cast<double>(readers_[u] + (ends_[u] > 0 ? 1 : 0));
      const double least = paid[u] > 0 ? kLeastShare : 1;
      now = least * equal + (paid[u] > 0 ? (1 - least) * now / paid[u] : 0);
    };
    for (size_t v = 0; v < vertices_.size(); ++v) {
      for (size_t i = 0; i < shares_[v].size(); ++i) {
        if (!whole_[vertices_[v].operands[i]]) share(vertices_[v].operands[i], shares_[v][i]);
      }
      if (!whole_[v] && ends_[v] > 0) share(static_cast<int64_t>(v), end_shares_[v]);
    }
  }

  /// A value stays where it is made, or is also put where a move takes it that costs something.
  void add_states(int64_t v, const Place* made, std::vector<State>& states) {
    const bool pending = made->type.placement.pending();
    states.push_back({made, made});
    for (const Place* put : vertices_[v].places) {
      if (put == made || put->type.placement.pending()) continue;
      const double price = move(*made, *put);
      if (price < kForbidden && (price > 0 || pending)) states.push_back({made, put});
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
    join_results_of_calls();
  }

  /// Results of one call come from one run of it.
  void join_results_of_calls() {
    std::map<std::vector<int64_t>, std::vector<int64_t>> by_operands;
    for (size_t v = 0; v < vertices_.size(); ++v) {
      if (vertices_[v].call() == nullptr) continue;
      auto& others = by_operands[vertices_[v].operands];
      const auto same = std::find_if(others.begin(), others.end(), [&](int64_t other) {
        return vertices_[other].call()->runs_with(*vertices_[v].call());
      });
      if (same == others.end()) {
        others.push_back(static_cast<int64_t>(v));
        continue;
      }
      const size_t ways = vertices_[v].modes.size();
      JOINSUM_CHECK(ways == vertices_[*same].modes.size(), "call=", vertices_[v].call()->text());
      TableKey key;
      key.add(static_cast<double>(ways));
      key.end();
      add_table(mode_of(*same), mode_of(static_cast<int64_t>(v)), std::move(key), [&] {
        std::vector<double> costs(ways * ways, kForbidden);
        for (size_t way = 0; way < ways; ++way) costs[way * ways + way] = 0;
        return costs;
      });
    }
  }

  /// Tables of one key are one.
  void add_table(int64_t first, int64_t second, TableKey key, const auto& entries) {
    MinSumProblem::Entries& costs = known_tables_[std::move(key)];
    if (costs == nullptr) costs = std::make_shared<const std::vector<double>>(entries());
    tables_.push_back({first, second, costs});
  }

  void add_to_key(TableKey& key, const std::vector<State>& states) const {
    for (const State& state : states) {
      key.add(state.made);
      key.add(state.put);
    }
    key.end();
  }

  /// From what an operator leaves to where the value is put.
  void add_own_table(int64_t v) {
    const Vertex& vertex = vertices_[v];
    TableKey key;
    add_to_key(key, states_[v]);
    for (const Mode& mode : vertex.modes) key.add(mode.result);
    add_table(mode_of(v), state_of(v), std::move(key), [&] {
      std::vector<double> costs;
      for (const Mode& mode : vertex.modes) {
        const Place* at = vertex.lying(mode.result);
        for (const State& state : states_[v]) {
          const bool fits = state.made == nullptr || state.made == at;
          costs.push_back(fits ? move(*mode.result, *state.put) : kForbidden);
        }
      }
      return costs;
    });
  }

  /// From where a value lies to where a reader needs it. Of an input with one start, also straight from there.
  void add_edge_table(int64_t v, size_t operand) {
    const Vertex& reader = vertices_[v];
    const int64_t u = reader.operands[operand];
    const Vertex& source = vertices_[u];
    const double share = shares_[v][operand];
    const Place* start = nullptr;
    if (source.input() != nullptr && source.modes.size() == 1 && pin_of(source) == nullptr)
      start = source.modes[0].result;
    TableKey key;
    add_to_key(key, states_[u]);
    for (const Mode& mode : reader.modes) key.add(mode.needs[operand]);
    key.end();
    key.add(start);
    key.add(share);
    add_table(state_of(u), mode_of(v), std::move(key), [&] {
      std::vector<double> costs;
      for (const State& state : states_[u]) {
        const Place* made = state.made != nullptr ? state.made : start;
        for (const Mode& mode : reader.modes) {
          double cost = move(*state.put, *mode.needs[operand]);
          if (made != nullptr) cost = std::min(cost, move(*made, *mode.needs[operand]));
          costs.push_back(share * cost);
        }
      }
      return costs;
    });
  }

  double move(const Place& from, const Place& to) const { return memory_->moves(from, to); }

  /// An output is settled, and a tied one ends where its input starts.
  void add_output(const tra::Plan::Output& output) {
    const int64_t v = number_.at(output.node.get());
    if (relaxed_ && !whole_[v]) return;
    for (size_t i = 0; i < states_[v].size(); ++i) {
      if (states_[v][i].put->type.placement.pending()) state_costs_[v][i] = kForbidden;
    }
    if (!output.tied_input) return;
    for (size_t u = 0; u < vertices_.size(); ++u) {
      const Vertex& input = vertices_[u];
      if (input.output || input.input() == nullptr || input.input()->name != *output.tied_input) continue;
      if (static_cast<int64_t>(u) == v) continue;
      std::vector<double> costs;
      for (const State& state : states_[v]) {
        for (const Mode& start : input.modes) {
          double cost = move(*state.put, *start.result);
          if (state.made != nullptr) cost = std::min(cost, move(*state.made, *start.result));
          costs.push_back(cost);
        }
      }
      tables_.push_back({state_of(v), mode_of(static_cast<int64_t>(u)),
                         std::make_shared<const std::vector<double>>(std::move(costs))});
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
        operands.push_back(
            brought(made[vertex.operands[i]], put[vertex.operands[i]], mode.needs[i]->type.placement, moves));
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
      put.push_back(stays ? made.back() : moves.move(made.back(), state.put->type.placement));
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
    const ia::PhysicalType& start = vertex.modes[values[mode_of(v)]].result->type;
    const std::string& name = vertex.input()->name;
    if (demands_.inputs.contains(name) || demands_.starts.contains(name) || !start.placement.fully_replicated() ||
        objective_ == Objective::kPaperFloats) {
      return start;
    }
    const Place* need = nullptr;
    for (const auto& output : plan_.outputs()) {
      if (output.node.get() == vertex.node || output.tied_input == name) return start;
    }
    for (size_t r = 0; r < vertices_.size(); ++r) {
      const Mode& mode = vertices_[r].modes[values[mode_of(static_cast<int64_t>(r))]];
      for (size_t i = 0; i < vertices_[r].operands.size(); ++i) {
        if (vertices_[r].operands[i] != v) continue;
        if (need != nullptr && need->placement != mode.needs[i]->placement) return start;
        need = mode.needs[i];
      }
    }
    return need == nullptr ? start : need->type;
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
    Places& places = memory_->places;
    const Place* target = places.placed(places.number(made->type().relation), need);
    const bool straight = move(*places.of(made->type()), *target) < move(*places.of(put->type()), *target);
    return moves.move(straight ? made : put, need);
  }

  const tra::Plan plan_;
  PlacementDemands demands_;
  std::shared_ptr<PlacementMemory> memory_;
  std::unique_lock<std::mutex> turn_;
  Objective objective_;
  Labels labels_;
  std::vector<Vertex> vertices_;
  std::unordered_map<const tra::Node*, int64_t> number_;
  std::vector<int64_t> readers_;  ///< operands that take each value
  std::vector<int64_t> ends_;     ///< outputs that it is, but for those told where to end
  std::vector<bool> tied_;
  std::vector<std::vector<State>> states_;
  std::vector<std::vector<const Place*>> made_;  ///< places in which a value is made
  std::vector<bool> whole_;                      ///< whether the states of a value are all that there are
  bool relaxed_ = false;
  std::vector<std::vector<double>> shares_;  ///< of a move of each operand that the operator pays
  std::vector<double> end_shares_;           ///< of a move that settles a value, which outputs pay
  std::vector<std::vector<double>> mode_costs_;
  std::vector<std::vector<double>> state_costs_;
  std::vector<Table> tables_;
  std::unordered_map<TableKey, MinSumProblem::Entries, TableKey::Hash> known_tables_;
};

PlacementProblem::PlacementProblem(const tra::Plan& plan, const PlacementDemands& demands,
                                   std::shared_ptr<PlacementMemory> memory)
    : builder_(std::make_unique<Builder>(plan, demands, std::move(memory))) {}

PlacementProblem::~PlacementProblem() = default;

const Labels& PlacementProblem::labels() const { return builder_->labels(); }

bool PlacementProblem::whole() const { return builder_->whole(); }

double PlacementProblem::bound(const Placed& placed, const MinSumLimits& limits) {
  builder_->relax(placed.choices);
  return builder_->bound(limits);
}

std::optional<Placed> PlacementProblem::solve(const std::optional<std::vector<int64_t>>& only,
                                              const MinSumLimits& limits) const {
  return builder_->solve(only, limits);
}

}  // namespace joinsum::optimizer

#include "optimizer/placement/problem.h"

#include <algorithm>
#include <bit>
#include <mutex>

#include "optimizer/placement/dual.h"
#include "optimizer/placement/routing.h"

namespace joinsum::optimizer {
namespace {

/// Layouts made times layouts that a value may be put in, beyond which only where it is put is chosen: together of all
/// values, but at least and at most of one.
constexpr size_t kStatesOfAll = 15000;
constexpr size_t kFewestStates = 150;
constexpr size_t kMostStates = 2500;

/// Passes that raise a bound, between which plans are looked for, and the part of the gap that some must close.
constexpr int kPasses = 60;
constexpr int kPassesBetweenChoices = 6;
constexpr double kLeastGain = 0.02;
/// What a bound in bytes may lack: flops weigh less than that besides, and both together less than half a byte.
constexpr double kSlackBytes = 0.2;

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
    find_further_results();
    make_costs();
    for (size_t v = 0; v < vertices_.size(); ++v) make_states(static_cast<int64_t>(v));
    make_tables();
  }

  bool whole() const {
    return std::all_of(whole_.begin(), whole_.end(), [](bool whole) { return whole; });
  }

  const Labels& labels() const { return labels_; }

  std::optional<Placed> solve(const std::optional<std::vector<int64_t>>& only, const MinSumLimits& limits) const {
    try {
      const MinSumSolution solution = joinsum::optimizer::solve(problem_of(only), limits);
      std::vector<size_t> modes;
      for (size_t v = 0; v < vertices_.size(); ++v) {
        modes.push_back(static_cast<size_t>(solution.values[mode_of(static_cast<int64_t>(v))]));
      }
      return placed(choice_of(solution.values), std::move(modes), solution.lower_bound, solution.exact);
    } catch (const PlanError&) {
      return std::nullopt;
    }
  }

  Placed bounded(const Placed& start, const MinSumLimits& limits) const;

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

  Choice choice_of(const std::vector<int64_t>& values) const {
    Choice out;
    for (size_t v = 0; v < vertices_.size(); ++v) {
      const auto number = static_cast<int64_t>(v);
      out.modes.push_back(&vertices_[v].modes[values[mode_of(number)]]);
      out.put.push_back(states_[v][values[state_of(number)]].put);
    }
    return out;
  }

  Placed placed(const Choice& choice, std::vector<size_t> modes, double bound, bool exact) const {
    Placed out{{}, bound, exact, {}, std::move(modes)};
    out.plan = Lowering(plan_, demands_, *memory_, vertices_).plan_of(choice, out.nodes);
    return out;
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
    for (size_t v = 0; v < vertices_.size(); ++v) {
      const Vertex& vertex = vertices_[v];
      std::vector<double> costs;
      for (const Mode& mode : vertex.modes) {
        const double kept = vertex.output ? 0 : demands_.byte_price * busiest_bytes(mode.result->type);
        costs.push_back((runs_with_[v] ? 0 : mode.value + weight * mode.flops) + kept);
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

  /// Results of one call come from one run of it, whose work counts once.
  void find_further_results() {
    runs_with_.resize(vertices_.size());
    std::map<std::vector<int64_t>, std::vector<int64_t>> by_operands;
    for (size_t v = 0; v < vertices_.size(); ++v) {
      if (vertices_[v].call() == nullptr || vertices_[v].call()->results.size() == 1) continue;
      auto& others = by_operands[vertices_[v].operands];
      const auto same = std::find_if(others.begin(), others.end(), [&](int64_t other) {
        return vertices_[other].call()->runs_with(*vertices_[v].call());
      });
      if (same == others.end()) {
        others.push_back(static_cast<int64_t>(v));
      } else {
        runs_with_[v] = *same;
      }
    }
  }

  void join_results_of_calls() {
    for (size_t v = 0; v < vertices_.size(); ++v) {
      if (!runs_with_[v]) continue;
      const size_t ways = vertices_[v].modes.size();
      JOINSUM_CHECK(ways == vertices_[*runs_with_[v]].modes.size(), "call=", vertices_[v].call()->text());
      TableKey key;
      key.add(static_cast<double>(ways));
      key.end();
      add_table(mode_of(*runs_with_[v]), mode_of(static_cast<int64_t>(v)), std::move(key), [&] {
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
    const Place* start = nullptr;
    if (source.input() != nullptr && source.modes.size() == 1 && pin_of(source) == nullptr)
      start = source.modes[0].result;
    TableKey key;
    add_to_key(key, states_[u]);
    for (const Mode& mode : reader.modes) key.add(mode.needs[operand]);
    key.end();
    key.add(start);
    add_table(state_of(u), mode_of(v), std::move(key), [&] {
      std::vector<double> costs;
      for (const State& state : states_[u]) {
        const Place* made = state.made != nullptr ? state.made : start;
        for (const Mode& mode : reader.modes) {
          double cost = move(*state.put, *mode.needs[operand]);
          if (made != nullptr) cost = std::min(cost, move(*made, *mode.needs[operand]));
          costs.push_back(cost);
        }
      }
      return costs;
    });
  }

  double move(const Place& from, const Place& to) const { return memory_->moves(from, to); }

  /// An output is settled, and a tied one ends where its input starts.
  void add_output(const tra::Plan::Output& output) {
    const int64_t v = number_.at(output.node.get());
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

  const tra::Plan plan_;
  PlacementDemands demands_;
  std::shared_ptr<PlacementMemory> memory_;
  std::unique_lock<std::mutex> turn_;
  Objective objective_;
  Labels labels_;
  std::vector<Vertex> vertices_;
  std::unordered_map<const tra::Node*, int64_t> number_;
  std::vector<std::optional<int64_t>> runs_with_;  ///< of results of calls but the first: that one
  std::vector<int64_t> readers_;  ///< operands that take each value
  std::vector<int64_t> ends_;     ///< outputs that it is, but for those told where to end
  std::vector<bool> tied_;
  std::vector<std::vector<State>> states_;
  std::vector<std::vector<const Place*>> made_;  ///< places in which a value is made
  std::vector<bool> whole_;                      ///< whether the states of a value are all that there are
  std::vector<std::vector<double>> mode_costs_;
  std::vector<std::vector<double>> state_costs_;
  std::vector<Table> tables_;
  std::unordered_map<TableKey, MinSumProblem::Entries, TableKey::Hash> known_tables_;
};

Placed PlacementProblem::Builder::bounded(const Placed& start, const MinSumLimits& limits) const {
  JOINSUM_CHECK(demands_.pins.empty(), "optimize: no bound is known of plans with pinned values");
  const Routing routing(vertices_, mode_costs_, ends_, *memory_);
  const DeliveryProblem& problem = routing.problem();
  std::vector<size_t> best = start.modes;
  problem.improve(best, limits.deadline);
  double least = problem.cost(best);
  Dual dual(problem);
  double before = dual.bound();
  const double slack = objective_ == Objective::kSeconds ? 1e-12 * least : kSlackBytes;
  for (int pass = 1; pass <= kPasses && dual.bound() < least - slack && !min_sum::expired(limits.deadline); ++pass) {
    dual.ascend(least + slack);
    if (pass % kPassesBetweenChoices != 0) continue;
    std::vector<size_t> modes = dual.choose();
    problem.improve(modes, limits.deadline);
    const double cost = problem.cost(modes);
    if (cost < least) best = std::move(modes);
    least = std::min(least, cost);
    if (dual.bound() - before < kLeastGain * (least - before)) break;
    before = dual.bound();
  }
  return placed(routing.choice(best), best, std::min(dual.bound(), least), false);
}

PlacementProblem::PlacementProblem(const tra::Plan& plan, const PlacementDemands& demands,
                                   std::shared_ptr<PlacementMemory> memory)
    : builder_(std::make_unique<Builder>(plan, demands, std::move(memory))) {}

PlacementProblem::~PlacementProblem() = default;

const Labels& PlacementProblem::labels() const { return builder_->labels(); }

bool PlacementProblem::whole() const { return builder_->whole(); }

Placed PlacementProblem::bounded(const Placed& placed, const MinSumLimits& limits) const {
  return builder_->bounded(placed, limits);
}

std::optional<Placed> PlacementProblem::solve(const std::optional<std::vector<int64_t>>& only,
                                              const MinSumLimits& limits) const {
  return builder_->solve(only, limits);
}

}  // namespace joinsum::optimizer

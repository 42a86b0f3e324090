#include "optimizer/placement/tables.h"

#include <algorithm>

namespace joinsum::optimizer {
namespace {

/// Layouts made times layouts that a value may be put in, beyond which only where it is put is chosen: together of all
/// values, but at least and at most of one.
constexpr size_t kStatesOfAll = 15000;
constexpr size_t kFewestStates = 150;
constexpr size_t kMostStates = 2500;

}  // namespace

double busiest_bytes(const ia::PhysicalType& type) {
  int64_t most = 0;
  for (int64_t site = 0; site < type.sites(); ++site) most = std::max(most, type.bytes(site));
  return static_cast<double>(most);
}

Readers::Readers(const tra::Plan& plan, const PlacementDemands& demands, const std::vector<Vertex>& vertices)
    : operands(vertices.size()), ends(vertices.size()), tied(vertices.size()) {
  std::unordered_map<const tra::Node*, size_t> number;
  for (size_t v = 0; v < vertices.size(); ++v) {
    if (!vertices[v].output) number[vertices[v].node] = v;
    for (const int64_t operand : vertices[v].operands) ++operands[operand];
  }
  for (const auto& output : plan.outputs()) {
    if (demands.ends.contains(output.name)) continue;
    const size_t v = number.at(output.node.get());
    ++ends[v];
    if (output.tied_input) tied[v] = true;
  }
}

PlacementTables::PlacementTables(const tra::Plan& plan, const PlacementDemands& demands, PlacementMemory& memory,
                                 const std::vector<Vertex>& vertices, const Readers& readers)
    : plan_(plan), demands_(demands), memory_(memory), vertices_(vertices), readers_(readers) {
  for (const Vertex& vertex : vertices_) {
    auto& made = made_.emplace_back();
    if (vertex.output) continue;
    number_[vertex.node] = static_cast<int64_t>(made_.size()) - 1;
    for (const Mode& mode : vertex.modes) {
      const Place* place = vertex.lying(mode.result);
      if (std::find(made.begin(), made.end(), place) == made.end()) made.push_back(place);
    }
  }
}

MinSumProblem PlacementTables::problem(std::vector<std::vector<double>> costs) const {
  MinSumProblem problem;
  for (size_t v = 0; v < vertices_.size(); ++v) {
    problem.add_variable(std::move(costs[v]));
    problem.add_variable(state_costs_[v]);
  }
  for (const Table& table : tables_) problem.add_pair(table.first, table.second, table.costs);
  return problem;
}

std::vector<size_t> PlacementTables::modes(const std::vector<int64_t>& values) const {
  std::vector<size_t> out;
  for (size_t v = 0; v < vertices_.size(); ++v) {
    out.push_back(static_cast<size_t>(values[mode_of(static_cast<int64_t>(v))]));
  }
  return out;
}

Choice PlacementTables::choice(const std::vector<int64_t>& values) const {
  Choice out;
  for (size_t v = 0; v < vertices_.size(); ++v) {
    const auto number = static_cast<int64_t>(v);
    out.modes.push_back(&vertices_[v].modes[values[mode_of(number)]]);
    out.put.push_back(states_[v][values[state_of(number)]].put);
  }
  return out;
}

// --- where values may be taken from ----------------------------------------------------------------------------------

const ia::Placement* PlacementTables::pin_of(const Vertex& vertex) const {
  const auto found = demands_.pins.find(vertex.node);
  return found == demands_.pins.end() || vertex.output ? nullptr : &found->second;
}

double PlacementTables::kept(const Place* put) const {
  return demands_.byte_price > 0 ? demands_.byte_price * busiest_bytes(put->type) : 0;
}

PlacementTables::Kind PlacementTables::kind_of(size_t v) const {
  const Vertex& vertex = vertices_[v];
  if (vertex.output) return Kind::kEnd;
  if (memory_.objective == Objective::kPaperFloats || pin_of(vertex) != nullptr) return Kind::kPut;
  if (readers_.operands[v] + 2 * readers_.ends[v] <= 1) return Kind::kStays;
  if (readers_.operands[v] == 0 && !readers_.tied[v]) return Kind::kSettles;
  const size_t most = std::clamp(kStatesOfAll / vertices_.size(), kFewestStates, kMostStates);
  return made_[v].size() * vertex.places.size() <= most ? Kind::kBeside : Kind::kPut;
}

/// Two readers that are brought to one more place share the move to it, which no state says.
bool PlacementTables::whole() const {
  for (size_t v = 0; v < vertices_.size(); ++v) {
    const Kind kind = kind_of(v);
    if (kind == Kind::kBeside && readers_.operands[v] + readers_.ends[v] > 2) return false;
    const bool apart = memory_.objective != Objective::kPaperFloats && pin_of(vertices_[v]) == nullptr;
    if (kind == Kind::kPut && apart) return false;
  }
  return true;
}

void PlacementTables::make() {
  if (!states_.empty()) return;
  for (size_t v = 0; v < vertices_.size(); ++v) make_states(static_cast<int64_t>(v));
  make_tables();
}

void PlacementTables::make_states(int64_t v) {
  const Vertex& vertex = vertices_[v];
  auto& states = states_.emplace_back();
  const Kind kind = kind_of(v);
  if (kind == Kind::kEnd) {
    states.push_back({});
    state_costs_.push_back({0});
    return;
  }
  if (kind == Kind::kPut) {
    for (const Place* place : vertex.places) states.push_back({nullptr, place});
  } else {
    for (const Place* place : made_[v]) {
      if (kind == Kind::kStays) states.push_back({place, place});
      if (kind == Kind::kSettles) states.push_back({place, settled_from(v, place)});
      if (kind == Kind::kBeside) add_states(v, place, states);
    }
  }
  add_state_costs(v);
}

void PlacementTables::add_state_costs(int64_t v) {
  auto& costs = state_costs_.emplace_back();
  const ia::Placement* pin = pin_of(vertices_[v]);
  for (const State& state : states_[v]) {
    const bool allowed = pin == nullptr || state.put->type.placement == *pin;
    costs.push_back(!allowed ? kForbidden : state.made == state.put ? 0 : kept(state.put));
  }
}

/// Where a value that nothing reads is best put, if it is made there.
const Place* PlacementTables::settled_from(int64_t v, const Place* made) {
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
void PlacementTables::add_states(int64_t v, const Place* made, std::vector<State>& states) {
  const bool pending = made->type.placement.pending();
  states.push_back({made, made});
  for (const Place* put : vertices_[v].places) {
    if (put == made || put->type.placement.pending()) continue;
    const double price = move(*made, *put);
    if (price < kForbidden && (price > 0 || pending)) states.push_back({made, put});
  }
}

void PlacementTables::make_tables() {
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
void PlacementTables::join_results_of_calls() {
  const std::vector<size_t> first = first_results(vertices_);
  for (size_t v = 0; v < vertices_.size(); ++v) {
    if (first[v] == v) continue;
    const size_t ways = vertices_[v].modes.size();
    Key key;
    key.add(static_cast<double>(ways));
    key.end();
    add_table(mode_of(static_cast<int64_t>(first[v])), mode_of(static_cast<int64_t>(v)), std::move(key), [&] {
      std::vector<double> costs(ways * ways, kForbidden);
      for (size_t way = 0; way < ways; ++way) costs[way * ways + way] = 0;
      return costs;
    });
  }
}

/// Tables of one key are one.
void PlacementTables::add_table(int64_t first, int64_t second, Key key, const auto& entries) {
  MinSumProblem::Entries& costs = known_tables_[std::move(key)];
  if (costs == nullptr) costs = std::make_shared<const std::vector<double>>(entries());
  tables_.push_back({first, second, costs});
}

/// From what an operator leaves to where the value is put.
void PlacementTables::add_own_table(int64_t v) {
  const Vertex& vertex = vertices_[v];
  Key key;
  key.add(states_[v]);
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
void PlacementTables::add_edge_table(int64_t v, size_t operand) {
  const Vertex& reader = vertices_[v];
  const int64_t u = reader.operands[operand];
  const Vertex& source = vertices_[u];
  const Place* start = nullptr;
  if (source.input() != nullptr && source.modes.size() == 1 && pin_of(source) == nullptr)
    start = source.modes[0].result;
  Key key;
  key.add(states_[u]);
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

/// An output is settled, and a tied one ends where its input starts.
void PlacementTables::add_output(const tra::Plan::Output& output) {
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
    tables_.push_back(
        {state_of(v), mode_of(static_cast<int64_t>(u)), std::make_shared<const std::vector<double>>(std::move(costs))});
  }
}

}  // namespace joinsum::optimizer

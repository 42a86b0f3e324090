#include "optimizer/placement/routing.h"

#include <algorithm>

namespace joinsum::optimizer {
namespace {

/// The position of a place, which is added if it is not there.
size_t position(std::vector<const Place*>& places, const Place* place) {
  const auto at = std::find(places.begin(), places.end(), place);
  if (at == places.end()) {
    places.push_back(place);
    return places.size() - 1;
  }
  return static_cast<size_t>(at - places.begin());
}

}  // namespace

Routing::Routing(const tra::Plan& plan, const PlacementDemands& demands, const std::vector<Vertex>& vertices,
                 std::vector<std::vector<double>> costs, PlacementMemory& memory)
    : vertices_(vertices), memory_(memory) {
  const std::vector<size_t> first = first_results(vertices);
  for (size_t v = 0; v < vertices.size(); ++v) {
    if (first[v] == v) {
      vertex_.push_back(problem_.costs.size());
      problem_.costs.push_back(std::move(costs[v]));
    } else {
      vertex_.push_back(vertex_[first[v]]);
      auto& together = problem_.costs[vertex_[v]];
      for (size_t mode = 0; mode < together.size(); ++mode) together[mode] += costs[v][mode];
    }
  }
  const std::vector<Takers> all = takers(plan, demands);
  for (size_t v = 0; v < vertices.size(); ++v) {
    if (vertices[v].output) continue;
    const auto pin = demands.pins.find(vertices[v].node);
    const bool pinned = pin != demands.pins.end();
    if (pinned || all[v].ends || !all[v].operands.empty() || !all[v].starts.empty())
      add(v, all[v], pinned ? &pin->second : nullptr);
  }
}

std::vector<Routing::Takers> Routing::takers(const tra::Plan& plan, const PlacementDemands& demands) const {
  std::vector<Takers> out(vertices_.size());
  std::unordered_map<const tra::Node*, size_t> number;
  std::map<std::string, size_t> inputs;
  for (size_t v = 0; v < vertices_.size(); ++v) {
    const Vertex& vertex = vertices_[v];
    for (size_t i = 0; i < vertex.operands.size(); ++i) out[vertex.operands[i]].operands.emplace_back(v, i);
    if (vertex.output) continue;
    number[vertex.node] = v;
    if (vertex.input() != nullptr) inputs[vertex.input()->name] = v;
  }
  for (const auto& output : plan.outputs()) {
    if (demands.ends.contains(output.name)) continue;
    const size_t v = number.at(output.node.get());
    if (!output.tied_input) {
      out[v].ends = true;
    } else if (inputs.contains(*output.tied_input) && inputs.at(*output.tied_input) != v) {
      out[v].starts.push_back(inputs.at(*output.tied_input));
    }
  }
  return out;
}

/// A value that one operator reads goes straight to it.
void Routing::add(size_t v, const Takers& takers, const ia::Placement* pin) {
  const Vertex& vertex = vertices_[v];
  Routes routes;
  DeliveryProblem::Value value;
  auto& maker = value.members.emplace_back(DeliveryProblem::Member{vertex_[v], {}});
  for (const Mode& mode : vertex.modes) maker.places.push_back(position(routes.made, mode.result));
  const auto take = [&](size_t reader, const auto& needed) {
    auto& member = value.members.emplace_back(DeliveryProblem::Member{vertex_[reader], {}});
    for (const Mode& mode : vertices_[reader].modes) member.places.push_back(position(routes.needed, needed(mode)));
  };
  for (const auto& [reader, operand] : takers.operands)
    take(reader, [&, operand = operand](const Mode& mode) { return vertex.lying(mode.needs[operand]); });
  for (const size_t start : takers.starts) take(start, [](const Mode& mode) { return mode.result; });
  if (pin != nullptr) {
    routes.put.push_back(memory_.places.placed(vertex.relation, *pin));
  } else if (takers.ends || takers.operands.size() + takers.starts.size() > 1) {
    std::copy_if(vertex.places.begin(), vertex.places.end(), std::back_inserter(routes.put),
                 [](const Place* place) { return !place->type.placement.pending(); });
  }
  value.routes = known(std::move(routes), pin != nullptr ? Route::kPinned
                                          : takers.ends  ? Route::kSettles
                                                         : Route::kFree);
  if (value.routes->free() && pin == nullptr) return;
  problem_.values.push_back(std::move(value));
  makers_.push_back(v);
}

std::shared_ptr<const Routes> Routing::known(Routes routes, Route route) {
  Key key;
  for (const auto* places : {&routes.made, &routes.put, &routes.needed}) {
    key.insert(key.end(), places->begin(), places->end());
    key.push_back(nullptr);
  }
  key.insert(key.end(), static_cast<size_t>(route), nullptr);
  auto& out = known_[std::move(key)];
  if (out != nullptr) return out;
  add_prices(routes, route);
  out = std::make_shared<const Routes>(std::move(routes));
  return out;
}

void Routing::add_prices(Routes& routes, Route route) {
  for (const Place* made : routes.made) {
    for (const Place* put : routes.put) routes.putting.push_back(memory_.moves(*made, *put));
    const bool must = route == Route::kPinned || (route == Route::kSettles && made->type.placement.pending());
    routes.putting.push_back(must ? kForbidden : 0);
  }
  for (const Place* needed : routes.needed) {
    for (const Place* made : routes.made)
      routes.taking.push_back(route == Route::kPinned ? kForbidden : memory_.moves(*made, *needed));
    for (const Place* put : routes.put) routes.taking.push_back(memory_.moves(*put, *needed));
    routes.taking.push_back(kForbidden);
  }
  for (size_t source = 0; source < routes.sources(); ++source) {
    for (size_t n = 0; n < routes.needed.size(); ++n) {
      routes.taking_from.push_back(routes.taking[n * routes.sources() + source]);
    }
  }
}

std::vector<size_t> Routing::of_problem(const std::vector<size_t>& modes) const {
  std::vector<size_t> out(problem_.costs.size());
  for (size_t v = 0; v < modes.size(); ++v) out[vertex_[v]] = modes[v];
  return out;
}

std::vector<size_t> Routing::of_vertices(const std::vector<size_t>& modes) const {
  std::vector<size_t> out;
  for (const size_t x : vertex_) out.push_back(modes[x]);
  return out;
}

Choice Routing::choice(const std::vector<size_t>& modes) const {
  std::vector<size_t> put;
  for (const auto& value : problem_.values) put.push_back(problem_.delivery(value, modes).put);
  return choice(modes, put);
}

Choice Routing::choice(const std::vector<size_t>& modes, const std::vector<size_t>& put) const {
  Choice out;
  for (size_t v = 0; v < vertices_.size(); ++v) out.modes.push_back(&vertices_[v].modes[modes[vertex_[v]]]);
  out.put.resize(vertices_.size());
  for (size_t i = 0; i < problem_.values.size(); ++i) {
    const auto& places = problem_.values[i].routes->put;
    if (put[i] < places.size()) out.put[makers_[i]] = places[put[i]];
  }
  return out;
}

}  // namespace joinsum::optimizer

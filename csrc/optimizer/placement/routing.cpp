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

Routing::Routing(const std::vector<Vertex>& vertices, std::vector<std::vector<double>> costs,
                 const std::vector<int64_t>& ends, PlacementMemory& memory)
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
  std::vector<std::vector<std::pair<size_t, size_t>>> readers(vertices.size());
  for (size_t v = 0; v < vertices.size(); ++v) {
    for (size_t i = 0; i < vertices[v].operands.size(); ++i) readers[vertices[v].operands[i]].emplace_back(v, i);
  }
  for (size_t v = 0; v < vertices.size(); ++v) {
    if (!vertices[v].output && (!readers[v].empty() || ends[v] > 0)) add(v, readers[v], ends[v]);
  }
}

/// A value that one operator reads goes straight to it.
void Routing::add(size_t v, const std::vector<std::pair<size_t, size_t>>& readers, int64_t ends) {
  const Vertex& vertex = vertices_[v];
  Routes routes;
  DeliveryProblem::Value value;
  auto& maker = value.members.emplace_back(DeliveryProblem::Member{vertex_[v], {}});
  for (const Mode& mode : vertex.modes) maker.places.push_back(position(routes.made, mode.result));
  for (const auto& [reader, operand] : readers) {
    auto& member = value.members.emplace_back(DeliveryProblem::Member{vertex_[reader], {}});
    for (const Mode& mode : vertices_[reader].modes) {
      member.places.push_back(position(routes.needed, vertex.lying(mode.needs[operand])));
    }
  }
  if (readers.size() + 2 * static_cast<size_t>(ends) > 1) {
    std::copy_if(vertex.places.begin(), vertex.places.end(), std::back_inserter(routes.put),
                 [](const Place* place) { return !place->type.placement.pending(); });
  }
  value.routes = known(std::move(routes), ends > 0);
  if (value.routes->free()) return;
  problem_.values.push_back(std::move(value));
  makers_.push_back(v);
}

std::shared_ptr<const Routes> Routing::known(Routes routes, bool settles) {
  Key key;
  for (const auto* places : {&routes.made, &routes.put, &routes.needed}) {
    key.insert(key.end(), places->begin(), places->end());
    key.push_back(nullptr);
  }
  if (settles) key.push_back(nullptr);
  auto& out = known_[std::move(key)];
  if (out != nullptr) return out;
  add_prices(routes, settles);
  out = std::make_shared<const Routes>(std::move(routes));
  return out;
}

void Routing::add_prices(Routes& routes, bool settles) {
  for (const Place* made : routes.made) {
    for (const Place* put : routes.put) routes.putting.push_back(memory_.moves(*made, *put));
    routes.putting.push_back(settles && made->type.placement.pending() ? kForbidden : 0);
  }
  std::vector<const Place*> sources = routes.made;
  sources.insert(sources.end(), routes.put.begin(), routes.put.end());
  for (const Place* needed : routes.needed) {
    for (const Place* source : sources) routes.taking.push_back(memory_.moves(*source, *needed));
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

Choice Routing::choice(const std::vector<size_t>& modes) const {
  Choice out;
  for (size_t v = 0; v < vertices_.size(); ++v) out.modes.push_back(&vertices_[v].modes[modes[vertex_[v]]]);
  out.put.resize(vertices_.size());
  for (size_t i = 0; i < problem_.values.size(); ++i) {
    const auto& value = problem_.values[i];
    const size_t put = problem_.delivery(value, modes).put;
    if (put < value.routes->put.size()) out.put[makers_[i]] = value.routes->put[put];
  }
  return out;
}

}  // namespace joinsum::optimizer

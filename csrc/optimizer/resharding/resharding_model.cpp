#include "optimizer/resharding/resharding_model.h"

#include <algorithm>

namespace joinsum::optimizer::resharding {
namespace {

using layouts::Layout;

/// The position of a layout, which is appended if it is missing.
size_t position(std::vector<const Layout*>& layouts, const Layout* layout) {
  const auto at = std::find(layouts.begin(), layouts.end(), layout);
  if (at == layouts.end()) {
    layouts.push_back(layout);
    return layouts.size() - 1;
  }
  return static_cast<size_t>(at - layouts.begin());
}

}  // namespace

ReshardingModel::ReshardingModel(const model::PlacementModel& model) : vertices_(model.vertices), cache_(model.cache) {
  const std::vector<size_t> first = model::first_results(vertices_);
  for (size_t v = 0; v < vertices_.size(); ++v) {
    if (first[v] == v) {
      vertex_.push_back(problem_.costs.size());
      problem_.costs.push_back(model.costs[v]);
    } else {
      vertex_.push_back(vertex_[first[v]]);
      auto& together = problem_.costs[vertex_[v]];
      for (size_t strategy = 0; strategy < together.size(); ++strategy) together[strategy] += model.costs[v][strategy];
    }
  }
  const std::vector<model::Consumers> consumers = model::consumers_of(model);
  for (size_t v = 0; v < vertices_.size(); ++v) {
    const ia::Placement* pin = model.constraints.pin_of(vertices_[v].node);
    if (!vertices_[v].output && (pin != nullptr || consumers[v].any())) add(v, consumers[v], pin);
  }
}

/// A value that one operator reads is not staged.
void ReshardingModel::add(size_t v, const model::Consumers& consumers, const ia::Placement* pin) {
  const model::Vertex& vertex = vertices_[v];
  Routes routes;
  ReshardingProblem::Value value;
  auto& producer = value.members.emplace_back(ReshardingProblem::Member{vertex_[v], {}});
  for (const model::Strategy& strategy : vertex.strategies)
    producer.layouts.push_back(position(routes.produced, strategy.result));
  const auto take = [&](size_t reader, const auto& required) {
    auto& member = value.members.emplace_back(ReshardingProblem::Member{vertex_[reader], {}});
    for (const model::Strategy& strategy : vertices_[reader].strategies)
      member.layouts.push_back(position(routes.required, required(strategy)));
  };
  for (const auto& [reader, operand] : consumers.operands)
    take(reader, [&, operand = operand](const model::Strategy& strategy) {
      return vertex.layout_like(strategy.operand_layouts[operand]);
    });
  for (const size_t start : consumers.starts)
    take(start, [](const model::Strategy& strategy) { return strategy.result; });
  if (pin != nullptr) {
    routes.staged.push_back(cache_.layouts.placed(vertex.relation, *pin));
  } else if (consumers.ends() || consumers.operands.size() + consumers.starts.size() > 1) {
    std::copy_if(vertex.layouts.begin(), vertex.layouts.end(), std::back_inserter(routes.staged),
                 [](const Layout* layout) { return !layout->type.placement.pending(); });
  }
  value.routes = shared(std::move(routes), pin != nullptr     ? Route::kPinned
                                           : consumers.ends() ? Route::kReduces
                                                              : Route::kFree);
  if (value.routes->free() && pin == nullptr) return;
  problem_.values.push_back(std::move(value));
  producers_.push_back(v);
}

std::shared_ptr<const Routes> ReshardingModel::shared(Routes routes, Route route) {
  Key key;
  for (const auto* layouts : {&routes.produced, &routes.staged, &routes.required}) {
    key.insert(key.end(), layouts->begin(), layouts->end());
    key.push_back(nullptr);
  }
  key.insert(key.end(), static_cast<size_t>(route), nullptr);
  auto& out = routes_[std::move(key)];
  if (out != nullptr) return out;
  add_prices(routes, route);
  out = std::make_shared<const Routes>(std::move(routes));
  return out;
}

void ReshardingModel::add_prices(Routes& routes, Route route) {
  for (const Layout* produced : routes.produced) {
    for (const Layout* staged : routes.staged) routes.staging_costs.push_back(cache_.move_prices(*produced, *staged));
    const bool must = route == Route::kPinned || (route == Route::kReduces && produced->type.placement.pending());
    routes.staging_costs.push_back(must ? min_sum::kForbidden : 0);
  }
  for (const Layout* required : routes.required) {
    for (const Layout* produced : routes.produced)
      routes.fetch_costs.push_back(route == Route::kPinned ? min_sum::kForbidden
                                                           : cache_.move_prices(*produced, *required));
    for (const Layout* staged : routes.staged) routes.fetch_costs.push_back(cache_.move_prices(*staged, *required));
    routes.fetch_costs.push_back(min_sum::kForbidden);
  }
  for (size_t source = 0; source < routes.sources(); ++source) {
    for (size_t n = 0; n < routes.required.size(); ++n) {
      routes.fetch_costs_by_source.push_back(routes.fetch_costs[n * routes.sources() + source]);
    }
  }
}

std::vector<size_t> ReshardingModel::of_problem(const std::vector<size_t>& strategies) const {
  std::vector<size_t> out(problem_.costs.size());
  for (size_t v = 0; v < strategies.size(); ++v) out[vertex_[v]] = strategies[v];
  return out;
}

std::vector<size_t> ReshardingModel::of_vertices(const std::vector<size_t>& strategies) const {
  std::vector<size_t> out;
  for (const size_t x : vertex_) out.push_back(strategies[x]);
  return out;
}

model::Choice ReshardingModel::choice(const std::vector<size_t>& strategies) const {
  std::vector<size_t> staged;
  for (const auto& value : problem_.values) staged.push_back(problem_.resharding(value, strategies).staged);
  return choice(strategies, staged);
}

model::Choice ReshardingModel::choice(const std::vector<size_t>& strategies, const std::vector<size_t>& staged) const {
  model::Choice out;
  for (size_t v = 0; v < vertices_.size(); ++v)
    out.strategies.push_back(&vertices_[v].strategies[strategies[vertex_[v]]]);
  out.staged.resize(vertices_.size());
  for (size_t i = 0; i < problem_.values.size(); ++i) {
    const auto& layouts = problem_.values[i].routes->staged;
    if (staged[i] < layouts.size()) out.staged[producers_[i]] = layouts[staged[i]];
  }
  return out;
}

}  // namespace joinsum::optimizer::resharding

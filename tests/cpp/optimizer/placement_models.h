#pragma once

#include "einsum/lower.h"
#include "einsum/transforms/binary.h"
#include "optimizer/model/strategies.h"
#include "random_einsums.h"

namespace joinsum::optimizer {

/// The model of the placements of a logical plan, and what it refers to. Strategies cost their local work.
struct OwnedModel {
  tra::Plan plan;
  model::PlacementConstraints constraints = {};
  layouts::PlacementCache cache;
  division::LabelClasses labels{plan};
  std::vector<model::Vertex> vertices = model::enumerated_vertices(plan, constraints, cache, labels);
  std::vector<std::vector<double>> costs = {};

  OwnedModel(tra::Plan logical, const ia::Grid& grid, cost::Objective objective)
      : plan(std::move(logical)), cache(grid, objective, {}) {
    for (const model::Vertex& vertex : vertices) {
      auto& own = costs.emplace_back();
      for (const model::Strategy& strategy : vertex.strategies) own.push_back(strategy.value);
    }
  }

  model::PlacementModel model() { return {plan, constraints, cache, vertices, costs}; }
};

/// A random graph of einsums as a logical plan, cut for so many sites.
inline tra::Plan random_logical_plan(uint64_t seed, size_t vertices, int64_t sites) {
  einsum::RandomEinsums random(seed);
  const einsum::Plan binary = einsum::transforms::binary(random.plan({.vertices = vertices}));
  return einsum::lower(binary, einsum::even_cuts(binary, sites));
}

}  // namespace joinsum::optimizer

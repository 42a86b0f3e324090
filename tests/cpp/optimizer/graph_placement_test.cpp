#include "optimizer/graph_placement.h"

#include <gtest/gtest.h>

#include "einsum/text.h"
#include "optimizer/placement_brute_force.h"
#include "random_einsums.h"

namespace joinsum::optimizer {
namespace {

GraphPlacer placer_of(const einsum::Plan& plan, int64_t sites, Objective objective) {
  GraphPlacer::Names names;
  const auto printed = einsum::node_names(plan);
  for (const auto& node : plan.order()) {
    if (node->as<einsum::Einsum>() != nullptr) names.emplace_back(printed.at(node.get()), node);
  }
  return GraphPlacer(plan, {}, names, ia::Grid::of_sites(sites), objective, {});
}

class EveryPlan : public testing::TestWithParam<std::tuple<Objective, int64_t>> {};

/// Graphs of up to three vertices, fewer where there are more layouts.
TEST_P(EveryPlan, OfARandomSmallGraphCostsNoLessThanTheOneFound) {
  const auto [objective, sites] = GetParam();
  int64_t compared = 0;
  for (uint64_t seed = 0; compared < 200; ++seed) {
    einsum::RandomEinsums random(seed);
    const einsum::Plan plan = random.plan({.vertices = sites == 4 ? 1 + seed % 2 : 1 + seed % 3});
    const einsum::Plan binary = einsum::binary(plan);
    const tra::Plan logical = einsum::lower(binary, einsum::even_cuts(binary, sites));
    if (logical.order().size() > (sites == 4 ? 6 : 9)) continue;
    const GraphPlacement found = placer_of(plan, sites, objective).place({}, std::nullopt);
    const double least = BruteForce(logical, ia::Grid::of_sites(sites), objective).least();
    const PlanCost priced = cost(found.plan);
    ASSERT_DOUBLE_EQ(found.cost, value_of(priced, objective)) << plan.text();
    ASSERT_LE(found.lower_bound, found.cost) << plan.text();
    if (found.exact) {
      ASSERT_EQ(found.lower_bound, found.cost) << plan.text();
    }
    ASSERT_NEAR(found.cost, least, 1e-9 * least) << "seed " << seed << "\n" << plan.text() << logical.text() << found.plan.text();
    ASSERT_TRUE(found.exact) << plan.text();
    ++compared;
  }
}

INSTANTIATE_TEST_SUITE_P(Objectives, EveryPlan,
                         testing::Combine(testing::Values(Objective::kWireBytes, Objective::kSeconds),
                                          testing::Values(2, 3, 4)));

}  // namespace
}  // namespace joinsum::optimizer

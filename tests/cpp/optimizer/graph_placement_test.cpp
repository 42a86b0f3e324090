#include "optimizer/graph_placement.h"

#include <gtest/gtest.h>

#include "einsum/text.h"
#include "optimizer/placement_brute_force.h"
#include "random_einsums.h"

namespace joinsum::optimizer {
namespace {

GraphPlacer placer_of(const einsum::Plan& plan, int64_t sites, cost::Objective objective) {
  GraphPlacer::Names names;
  const auto printed = einsum::node_names(plan);
  for (const auto& node : plan.order()) {
    if (node->as<einsum::Einsum>() != nullptr) names.emplace_back(printed.at(node.get()), node);
  }
  return GraphPlacer(plan, {}, names, ia::Grid::of_sites(sites), objective, {});
}

/// Inputs start divided along their first key dimension by all axes, or whole where they are not cut.
struct Starts {
  std::vector<GraphPin> pins;
  std::map<std::string, ia::Placement> placements;

  Starts(const tra::Plan& logical, const ia::Grid& grid) {
    for (const auto& input : logical.inputs()) {
      const relation::RelationType& relation = input->type();
      const std::string& name = input->as<tra::Input>()->name;
      const bool cut = relation.arity() > 0;
      placements.emplace(name,
                         division::placement_of(Dims(grid.rank(), cut ? 0 : division::kNothing), relation.frontier));
      const auto first = std::find_if(relation.axes.begin(), relation.axes.end(),
                                      [](const relation::Axis& axis) { return axis.linked() && axis.key_dim == 0; });
      const std::string label = cut ? std::to_string(first - relation.axes.begin()) : "";
      pins.push_back({name, {}, einsum::Labels(grid.rank(), label)});
    }
  }
};

/// The most operands that one value is.
int64_t most_readers(const tra::Plan& plan) {
  std::unordered_map<const tra::Node*, int64_t> readers;
  int64_t out = 0;
  for (const auto& node : plan.order()) {
    for (const auto& input : node->inputs()) out = std::max(out, ++readers[input.get()]);
  }
  return out;
}

class EveryPlan : public ::testing::TestWithParam<std::tuple<cost::Objective, int64_t>> {
 protected:
  /// Graphs whose plan was proven best and moves something, and all.
  struct Counts {
    int64_t proven = 0;
    int64_t all = 0;
    int64_t with_three_readers = 0;
  };

  void compare(uint64_t seed, Counts& counts) const {
    const auto [objective, sites] = GetParam();
    const bool few = sites <= 3;
    einsum::RandomEinsums random(seed);
    const einsum::Plan plan = random.plan({.vertices = 1 + seed % (few ? 4 : 3)});
    const einsum::Plan binary = einsum::transforms::binary(plan);
    const tra::Plan logical = einsum::lower(binary, einsum::even_cuts(binary, sites));
    if (logical.order().size() > (few ? 11 : 7)) return;
    const ia::Grid grid = ia::Grid::of_sites(sites);
    const Starts starts = seed % 2 == 0 ? Starts({}, grid) : Starts(logical, grid);
    const double least = BruteForce(logical, grid, objective, starts.placements).least();
    const GraphPlacement found = placer_of(plan, sites, objective).place(starts.pins, std::nullopt);
    EXPECT_DOUBLE_EQ(found.cost, cost::value_of(cost::plan_cost(found.plan), objective)) << plan.text();
    EXPECT_LE(found.lower_bound, least * (1 + 1e-9)) << plan.text() << found.plan.text();
    EXPECT_TRUE(!found.exact || found.lower_bound == found.cost) << plan.text();
    EXPECT_GE(found.cost, least * (1 - 1e-9)) << plan.text();
    ++counts.all;
    EXPECT_TRUE(!found.exact || found.cost <= least * (1 + 1e-9)) << plan.text() << found.plan.text();
    if (found.exact && found.wire_bytes > 0) ++counts.proven;
    if (most_readers(logical) > 2) ++counts.with_three_readers;
  }
};

TEST_P(EveryPlan, OfARandomSmallGraphCostsNoLessThanTheBound) {
  Counts counts;
  uint64_t seed = 0;
  while (counts.proven < 200 && !HasFailure() && seed < 3000) compare(seed++, counts);
  EXPECT_EQ(counts.proven, 200);
  EXPECT_GE(counts.with_three_readers, 10);
}

INSTANTIATE_TEST_SUITE_P(Objectives, EveryPlan,
                         ::testing::Combine(::testing::Values(cost::Objective::kWireBytes, cost::Objective::kSeconds),
                                            ::testing::Values(2, 3, 4, 6)));

}  // namespace
}  // namespace joinsum::optimizer

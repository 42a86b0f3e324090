#include "optimizer/lowering/placement_lowering.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <random>

#include <gtest/gtest.h>

#include "optimizer/placement_models.h"
#include "optimizer/verification/verify.h"

namespace joinsum::optimizer::lowering {
namespace {

/// Whether a move can give a value this layout.
bool reachable(const layouts::Layout* layout) {
  return layout->type.placement.grid() != nullptr && !layout->type.placement.pending();
}

const layouts::Layout* one_of(const std::vector<const layouts::Layout*>& layouts, std::mt19937_64& random) {
  std::vector<const layouts::Layout*> some;
  std::copy_if(layouts.begin(), layouts.end(), std::back_inserter(some), reachable);
  return some.empty() ? nullptr : some[random() % some.size()];
}

/// A strategy for each vertex, at random, and staging layouts for some values: for all that are pending. Nothing where
/// some vertex has no strategy whose operands can be moved to their layouts.
std::optional<model::Choice> random_choice(const std::vector<model::Vertex>& vertices, std::mt19937_64& random) {
  model::Choice out;
  for (const model::Vertex& vertex : vertices) {
    std::vector<const model::Strategy*> strategies;
    for (const model::Strategy& strategy : vertex.strategies) {
      if (std::all_of(strategy.operand_layouts.begin(), strategy.operand_layouts.end(), reachable))
        strategies.push_back(&strategy);
    }
    if (strategies.empty()) return std::nullopt;
    out.strategies.push_back(strategies[random() % strategies.size()]);
    const bool pending = out.strategies.back()->result->type.placement.pending();
    out.staged.push_back(pending || random() % 2 == 0 ? one_of(vertex.layouts, random) : nullptr);
    if (pending && out.staged.back() == nullptr) return std::nullopt;
  }
  return out;
}

TEST(PlacementLowering, EveryChoiceBecomesAPlanThatComputesTheProgramInItsLayouts) {
  std::mt19937_64 random(5);
  int64_t plans = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const int64_t sites = 2 + static_cast<int64_t>(seed % 3);
    OwnedModel owned(random_logical_plan(seed, 1 + seed % 3, sites), ia::Grid::of_sites(sites),
                     cost::Objective::kSeconds);
    const auto choice = random_choice(owned.vertices, random);
    if (!choice) continue;
    LoweredNodes nodes;
    const ia::Plan plan = lowered(owned.model(), *choice, nodes);
    EXPECT_TRUE(verification::verify(plan, owned.plan).accepted()) << owned.plan.text() << plan.text();
    for (size_t v = 0; v < owned.vertices.size(); ++v) {
      const model::Vertex& vertex = owned.vertices[v];
      if (vertex.input() != nullptr || vertex.output) continue;
      const ia::NodePtr& work = nodes.at(vertex.join != nullptr ? vertex.join : vertex.node);
      for (size_t i = 0; i < vertex.operands.size(); ++i) {
        EXPECT_EQ(work->input(i)->type().placement, choice->strategies[v]->operand_layouts[i]->type.placement);
      }
    }
    ++plans;
  }
  EXPECT_GT(plans, 30);
}

}  // namespace
}  // namespace joinsum::optimizer::lowering

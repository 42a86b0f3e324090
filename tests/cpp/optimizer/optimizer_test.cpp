#include "optimizer/optimizer.h"

#include <gtest/gtest.h>

#include "ia/interpret.h"
#include "optimizer/paper_programs.h"
#include "random_plans.h"
#include "tra/interpret.h"
#include "tra/lower.h"
#include "tra/text.h"

namespace joinsum::optimizer {
namespace {

using testing::minimizing;

/// Whatever the program, the sites and the starts: the best plan means what the program means, and is no dearer than
/// the translation operator by operator.
TEST(Optimize, KeepsTheMeaningOfRandomPrograms) {
  for (uint64_t seed = 0; seed < 150; ++seed) {
    testing::RandomPlans random(seed);
    const tra::Plan plan = random.plan(5);
    const ia::Grid grid = random.grid(6);
    const model::InputPlacements inputs = random.placements(plan, grid);
    const auto contents = random.relations(plan);
    const auto wanted = tra::interpret(plan, contents);
    for (const cost::Objective objective :
         {cost::Objective::kWireBytes, cost::Objective::kPaperFloats, cost::Objective::kSeconds}) {
      const Optimized found = optimize(plan, grid, inputs, minimizing(objective));
      const ia::Plan& best = found.candidates[0].plan;
      const auto results = ia::interpret(best, contents);
      for (const auto& output : best.outputs()) {
        const auto got = ia::contents(results.at(output.name), output.node->type());
        ASSERT_TRUE(got == wanted.at(output.name)) << "seed " << seed << "\n" << plan.text() << best.text();
      }
      const ia::Plan lowered = tra::lower(plan, grid, inputs);
      rules::Pricer pricer(objective, {});
      ASSERT_FALSE(pricer.score(lowered) < found.candidates[0].score) << "seed " << seed;
    }
  }
}

/// A in one row of blocks and B in one column have no contracted dimension to divide: shuffled by it, all work would be
/// done on one site, and little moved.
TEST(Optimize, PlansThatRepeatWorkComeLast) {
  const tra::Plan plan = testing::product(1000, 1000, 1000, "5,1", "1,5");
  const ia::Grid grid = ia::Grid::of_sites(10);
  const auto placed = testing::starts(plan, grid, {{"A", 0}, {"B", 1}});
  for (const cost::Objective objective : {cost::Objective::kWireBytes, cost::Objective::kPaperFloats}) {
    const Optimized found = optimize(plan, grid, placed, minimizing(objective));
    const auto& best = found.candidates.front();
    const auto& last = found.candidates.back();
    EXPECT_EQ(best.score.undivided, 0);
    EXPECT_GT(last.score.undivided, 0);
    EXPECT_NE(last.name.find("(repeats work)"), std::string::npos);
    EXPECT_TRUE(std::any_of(found.candidates.begin(), found.candidates.end(), [&](const Candidate& candidate) {
      return candidate.score.undivided > 0 && candidate.score.value < best.score.value;
    }));
  }
}

/// The gradient of a weight that is read twice: with rows of the data divided, each site adds up what it has of both
/// products, and the total is reduced once.
TEST(Optimize, AddsUpPartialValuesBeforeItReducesThem) {
  const tra::Plan plan = tra::parse(R"(tra
input A: f32[8,4]<4,1>
input B: f32[8,4]<4,1>
input C: f32[8,4]<4,1>
input D: f32[8,4]<4,1>
first = aggregate[1, 2; add](join[0; 0; matmul_tn](A, B))
second = aggregate[1, 2; add](join[0; 0; matmul_tn](C, D))
output W = join[0, 1; 0, 1; add](first, second)
)");
  const ia::Grid grid = ia::Grid::of_sites(4);
  model::InputPlacements inputs;
  for (const char* name : {"A", "B", "C", "D"})
    inputs.emplace(name, division::placement_of(Dims(grid.rank(), 0), {4, 1}));
  const Optimized found = optimize(plan, grid, inputs, minimizing(cost::Objective::kWireBytes));
  const ia::Plan& best = found.candidates[0].plan;
  // All partial values but one move, of 4 x 4 floats each.
  EXPECT_EQ(cost::plan_cost(best).wire_bytes, 3 * 64) << best.text();
}

TEST(Optimize, RefusesUnknownPhasesAndRules) {
  const tra::Plan plan = tra::parse("tra\ninput X: f32[4]<2>\noutput Y = X\n");
  OptimizeOptions options;
  options.without = {"plalcement"};
  EXPECT_THROW(optimize(plan, ia::Grid::of_sites(2), {}, options), PlanError);
  options.without = {"lower", "placement"};
  EXPECT_THROW(optimize(plan, ia::Grid::of_sites(2), {}, options), PlanError);
  EXPECT_THROW(cost::objective_named("bytes"), PlanError);
}

TEST(Optimize, StopsAtTheDeadlineWithAPlan) {
  const tra::Plan plan = testing::network(1000, 600, 100, 40, 4);
  OptimizeOptions options;
  options.seconds = 0;
  const Optimized found = optimize(plan, ia::Grid::of_sites(4), {}, options);
  EXPECT_TRUE(found.out_of_time);
  EXPECT_FALSE(found.candidates.empty());
}

/// Inputs of given parts start as they say, every site does all the work where they say that, and what they become
/// means what the program means.
TEST(Optimize, IsNoDearerThanGivenPartsOfPlans) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    testing::RandomPlans random(seed);
    const tra::Plan plan = random.plan(5);
    const ia::Grid grid = random.grid(6);
    const auto contents = random.relations(plan);
    const auto wanted = tra::interpret(plan, contents);
    OptimizeOptions options = minimizing(cost::Objective::kSeconds);
    options.warm_starts = {{random.placements(plan, grid)}, {random.placements(plan, grid)}, {}};
    for (const auto& input : plan.inputs())
      options.warm_starts[2].inputs.emplace(input->as<tra::Input>()->name, ia::Placement::replicated(grid));
    options.warm_starts[2].everywhere = true;
    const Optimized found = optimize(plan, grid, {}, options);
    ASSERT_EQ(found.warm_starts.size(), 3u);
    rules::Pricer pricer(cost::Objective::kSeconds, {});
    for (size_t i = 0; i < found.warm_starts.size(); ++i) {
      ASSERT_TRUE(found.warm_starts[i]) << "seed " << seed << "\n" << plan.text();
      const ia::Plan& given = *found.warm_starts[i];
      EXPECT_LE(found.candidates[0].score.value, pricer.score(given).value * (1 + 1e-12)) << "seed " << seed;
      for (const auto& input : given.inputs()) {
        const auto start = options.warm_starts[i].inputs.find(input->as<ia::Input>()->name);
        if (start != options.warm_starts[i].inputs.end()) {
          EXPECT_TRUE(input->type().placement == start->second) << "seed " << seed;
        }
      }
      const auto results = ia::interpret(given, contents);
      for (const auto& output : given.outputs()) {
        const auto got = ia::contents(results.at(output.name), output.node->type());
        ASSERT_TRUE(got == wanted.at(output.name)) << "seed " << seed << "\n" << plan.text() << given.text();
      }
    }
    EXPECT_EQ(cost::plan_cost(*found.warm_starts[2]).wire_bytes, 0) << "seed " << seed;
  }
}

}  // namespace
}  // namespace joinsum::optimizer

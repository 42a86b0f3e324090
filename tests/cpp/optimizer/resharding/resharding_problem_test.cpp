#include "optimizer/resharding/resharding_problem.h"

#include <gtest/gtest.h>

#include "optimizer/resharding/resharding_problems.h"

namespace joinsum::optimizer::resharding {
namespace {

constexpr uint64_t kProblems = 300;

ReshardingProblem small(RandomReshardings& random) {
  return random.problem(3 + random.below(5), 2 + random.below(5), 1 + random.below(9));
}

TEST(ReshardingProblem, CostsWhatEnumerationOfItsLayoutsSays) {
  for (uint64_t seed = 0; seed < kProblems; ++seed) {
    RandomReshardings random(seed);
    const ReshardingProblem problem = small(random);
    const auto strategies = random.choice(problem);
    EXPECT_EQ(problem.cost(strategies), enumerated_cost(problem, strategies)) << "seed " << seed;
  }
}

TEST(ReshardingProblem, ImprovementEndsWhereNoVertexGainsAlone) {
  for (uint64_t seed = 0; seed < kProblems; ++seed) {
    RandomReshardings random(seed);
    const ReshardingProblem problem = small(random);
    auto strategies = random.choice(problem);
    const double before = problem.cost(strategies);
    if (before == min_sum::kForbidden) continue;
    problem.improve(strategies, {});
    const double after = problem.cost(strategies);
    EXPECT_LE(after, before) << "seed " << seed;
    for (size_t x = 0; x < strategies.size(); ++x) {
      auto other = strategies;
      for (size_t strategy = 0; strategy < problem.costs[x].size(); ++strategy) {
        other[x] = strategy;
        EXPECT_GE(enumerated_cost(problem, other), after) << "seed " << seed << ", vertex " << x;
      }
    }
  }
}

}  // namespace
}  // namespace joinsum::optimizer::resharding

#include "optimizer/solvers/crossing.h"

#include <gtest/gtest.h>

#include "optimizer/resharding/resharding_problems.h"

namespace joinsum::optimizer::solvers {
namespace {

constexpr uint64_t kCrossings = 300;

TEST(Crossing, IsTheBestOfAllThatTakeEachStrategyFromOneOfTwo) {
  int64_t better = 0;
  for (uint64_t seed = 0; seed < kCrossings; ++seed) {
    resharding::RandomReshardings random(seed);
    const resharding::ReshardingProblem problem =
        random.problem(3 + random.below(6), 2 + random.below(6), 1 + random.below(6));
    const auto first = random.choice(problem);
    const auto second = random.choice(problem);
    const double least = std::min(problem.cost(first), problem.cost(second));
    if (problem.cost(first) == min_sum::kForbidden || problem.cost(second) == min_sum::kForbidden) continue;
    const auto found = crossover(problem, first, second);
    for (size_t x = 0; x < found.size(); ++x) EXPECT_TRUE(found[x] == first[x] || found[x] == second[x]);
    const double all = resharding::least_of_all(
        problem, [&](size_t x, size_t strategy) { return strategy == first[x] || strategy == second[x]; });
    EXPECT_EQ(problem.cost(found), all) << "seed " << seed;
    if (all < least) ++better;
  }
  EXPECT_GT(better, static_cast<int64_t>(kCrossings / 4));
}

/// Too many vertices around each other to eliminate, and values with too many readers to list their joint costs.
TEST(Crossing, OfLargeProblemsIsNoDearerThanEither) {
  int64_t better = 0;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    resharding::RandomReshardings random(seed);
    const resharding::ReshardingProblem problem = random.problem(60, 90, 5 + random.below(20));
    auto first = random.choice(problem);
    auto second = random.choice(problem);
    for (auto* strategies : {&first, &second}) {
      for (size_t x = 0; x < strategies->size(); ++x) {
        if (problem.costs[x][(*strategies)[x]] == min_sum::kForbidden) (*strategies)[x] = 0;
      }
    }
    const double least = std::min(problem.cost(first), problem.cost(second));
    ASSERT_LT(least, min_sum::kForbidden);
    const double found = resharding::enumerated_cost(problem, crossover(problem, first, second));
    EXPECT_LE(found, least) << "seed " << seed;
    if (found < least) ++better;
  }
  EXPECT_GT(better, 10);
}

}  // namespace
}  // namespace joinsum::optimizer::solvers

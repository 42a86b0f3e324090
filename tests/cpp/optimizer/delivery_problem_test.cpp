#include <gtest/gtest.h>

#include "optimizer/delivery_problems.h"
#include "optimizer/placement/crossing.h"
#include "optimizer/placement/dual.h"

namespace joinsum::optimizer {
namespace {

constexpr uint64_t kProblems = 300;

DeliveryProblem small(RandomDeliveries& random) {
  return random.problem(3 + random.below(5), 2 + random.below(5), 1 + random.below(9));
}

double least_of_all(const DeliveryProblem& problem) {
  return least_of_all(problem, [](size_t, size_t) { return true; });
}

TEST(DeliveryProblem, CostsWhatEnumerationOfItsPlacesSays) {
  for (uint64_t seed = 0; seed < kProblems; ++seed) {
    RandomDeliveries random(seed);
    const DeliveryProblem problem = small(random);
    const auto modes = random.choice(problem);
    EXPECT_EQ(problem.cost(modes), enumerated_cost(problem, modes)) << "seed " << seed;
  }
}

TEST(DeliveryProblem, ImprovementEndsWhereNoVertexGainsAlone) {
  for (uint64_t seed = 0; seed < kProblems; ++seed) {
    RandomDeliveries random(seed);
    const DeliveryProblem problem = small(random);
    auto modes = random.choice(problem);
    const double before = problem.cost(modes);
    if (before == kForbidden) continue;
    problem.improve(modes, {});
    const double after = problem.cost(modes);
    EXPECT_LE(after, before) << "seed " << seed;
    for (size_t x = 0; x < modes.size(); ++x) {
      auto other = modes;
      for (size_t mode = 0; mode < problem.costs[x].size(); ++mode) {
        other[x] = mode;
        EXPECT_GE(enumerated_cost(problem, other), after) << "seed " << seed << ", vertex " << x;
      }
    }
  }
}

/// Whether deliveries are to all readers at once or in parts, and whatever the passes have dropped.
TEST(Dual, BoundsTheLeastCostOfAllChoicesFromBelow) {
  int64_t met = 0;
  for (uint64_t seed = 0; seed < kProblems; ++seed) {
    RandomDeliveries random(seed);
    const DeliveryProblem problem = small(random);
    const double least = least_of_all(problem);
    if (least == kForbidden) continue;
    for (const size_t readers : {size_t{1}, size_t{2}, size_t{3}, Dual::kMostReaders}) {
      Dual dual(problem, readers);
      EXPECT_LE(dual.bound(), least + 1e-9) << "seed " << seed;
      BestChoice best(problem, {});
      best.look_at(dual.choose());
      for (int pass = 0; pass < 9; ++pass) {
        dual.ascend(best.cost() + 1e-6);
        best.look_at(dual.choose());
        EXPECT_LE(dual.bound(), least + 1e-9) << "seed " << seed << ", readers " << readers;
      }
      EXPECT_GE(best.cost(), least) << "seed " << seed;
      if (dual.bound() > least - 1e-6 && best.cost() == least) ++met;
    }
  }
  EXPECT_GT(met, static_cast<int64_t>(kProblems));  // of four times as many
}

TEST(Crossing, IsTheBestOfAllThatTakeEachModeFromOneOfTwo) {
  int64_t better = 0;
  for (uint64_t seed = 0; seed < kProblems; ++seed) {
    RandomDeliveries random(seed);
    const DeliveryProblem problem = random.problem(3 + random.below(6), 2 + random.below(6), 1 + random.below(6));
    const auto first = random.choice(problem);
    const auto second = random.choice(problem);
    const double least = std::min(problem.cost(first), problem.cost(second));
    if (problem.cost(first) == kForbidden || problem.cost(second) == kForbidden) continue;
    const auto found = crossed(problem, first, second);
    for (size_t x = 0; x < found.size(); ++x) EXPECT_TRUE(found[x] == first[x] || found[x] == second[x]);
    const double all =
        least_of_all(problem, [&](size_t x, size_t mode) { return mode == first[x] || mode == second[x]; });
    EXPECT_EQ(problem.cost(found), all) << "seed " << seed;
    if (all < least) ++better;
  }
  EXPECT_GT(better, static_cast<int64_t>(kProblems / 4));
}

/// Too many vertices around each other to eliminate, and values with too many readers to list their joint costs.
TEST(Crossing, OfLargeProblemsIsNoDearerThanEither) {
  int64_t better = 0;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    RandomDeliveries random(seed);
    const DeliveryProblem problem = random.problem(60, 90, 5 + random.below(20));
    auto first = random.choice(problem);
    auto second = random.choice(problem);
    for (auto* modes : {&first, &second}) {
      for (size_t x = 0; x < modes->size(); ++x) {
        if (problem.costs[x][(*modes)[x]] == kForbidden) (*modes)[x] = 0;
      }
    }
    const double least = std::min(problem.cost(first), problem.cost(second));
    ASSERT_LT(least, kForbidden);
    const double found = enumerated_cost(problem, crossed(problem, first, second));
    EXPECT_LE(found, least) << "seed " << seed;
    if (found < least) ++better;
  }
  EXPECT_GT(better, 10);
}

}  // namespace
}  // namespace joinsum::optimizer

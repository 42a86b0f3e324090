#include "optimizer/solvers/message_passing.h"

#include <gtest/gtest.h>

#include "optimizer/resharding/resharding_problems.h"
#include "optimizer/solvers/crossing.h"

namespace joinsum::optimizer::solvers {
namespace {

constexpr uint64_t kProblems = 300;

resharding::ReshardingProblem small(resharding::RandomReshardings& random) {
  return random.problem(3 + random.below(5), 2 + random.below(5), 1 + random.below(9));
}

double least_of_all(const resharding::ReshardingProblem& problem) {
  return resharding::least_of_all(problem, [](size_t, size_t) { return true; });
}

/// Whether reshardings are to all readers at once or in parts, and whatever the passes have dropped.
TEST(MessagePassing, BoundsTheLeastCostOfAllChoicesFromBelow) {
  int64_t met = 0;
  for (uint64_t seed = 0; seed < kProblems; ++seed) {
    resharding::RandomReshardings random(seed);
    const resharding::ReshardingProblem problem = small(random);
    const double least = least_of_all(problem);
    if (least == min_sum::kForbidden) continue;
    for (const size_t readers : {size_t{1}, size_t{2}, size_t{3}, MessagePassing::kMostReaders}) {
      MessagePassing bound(problem, readers);
      EXPECT_LE(bound.bound(), least + 1e-9) << "seed " << seed;
      Incumbent best(problem, {});
      best.consider(bound.choose());
      for (int pass = 0; pass < 9; ++pass) {
        bound.ascend(best.cost() + 1e-6);
        best.consider(bound.choose());
        EXPECT_LE(bound.bound(), least + 1e-9) << "seed " << seed << ", readers " << readers;
      }
      EXPECT_GE(best.cost(), least) << "seed " << seed;
      if (bound.bound() > least - 1e-6 && best.cost() == least) ++met;
    }
  }
  EXPECT_GT(met, static_cast<int64_t>(kProblems));  // of four times as many
}

}  // namespace
}  // namespace joinsum::optimizer::solvers

#include "optimizer/solvers/branch_and_bound.h"

#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "optimizer/cost/cost.h"
#include "optimizer/lowering/placement_lowering.h"
#include "optimizer/placement_models.h"

namespace joinsum::optimizer::solvers {
namespace {

/// Lowers every choice of strategies and staging layouts, without pruning.
class Enumeration {
 public:
  struct Lowered {
    double cost;
    int64_t peak;
    model::Choice choice;
  };

  Enumeration(OwnedModel& owned, const resharding::ReshardingModel& resharding)
      : owned_(owned), resharding_(resharding), strategies_(owned.vertices.size()) {
    choose_strategies(0);
  }

  /// Nothing where there are too many.
  const std::vector<Lowered>& all() const { return all_; }
  bool complete() const { return complete_; }

 private:
  void choose_strategies(size_t vertex) {
    if (vertex == strategies_.size()) {
      staged_.assign(resharding_.problem().values.size(), 0);
      return choose_staging(0, 0);
    }
    for (size_t s = 0; complete_ && s < owned_.vertices[vertex].strategies.size(); ++s) {
      strategies_[vertex] = s;
      choose_strategies(vertex + 1);
    }
  }

  void choose_staging(size_t value, double cost) {
    const resharding::ReshardingProblem& problem = resharding_.problem();
    if (value == staged_.size()) {
      for (size_t v = 0; v < strategies_.size(); ++v) cost += problem.costs[v][strategies_[v]];
      if (cost < min_sum::kForbidden) lower(cost);
      return;
    }
    const auto costs = problem.costs_by_staged(problem.values[value], strategies_);
    for (size_t s = 0; complete_ && s < costs.size(); ++s) {
      staged_[value] = s;
      if (costs[s] < min_sum::kForbidden) choose_staging(value + 1, cost + costs[s]);
    }
  }

  void lower(double cost) {
    complete_ = all_.size() < 3000;
    lowering::LoweredNodes nodes;
    model::Choice choice = resharding_.choice(strategies_, staged_);
    const ia::Plan plan = lowering::lowered(owned_.model(), choice, nodes);
    all_.push_back({cost, cost::estimated_cost(plan, owned_.cache.cluster).peak.bytes, std::move(choice)});
  }

  OwnedModel& owned_;
  const resharding::ReshardingModel& resharding_;
  std::vector<size_t> strategies_;
  std::vector<size_t> staged_;
  std::vector<Lowered> all_;
  bool complete_ = true;
};

double least_within(const std::vector<Enumeration::Lowered>& all, int64_t bytes) {
  double least = min_sum::kForbidden;
  for (const auto& each : all) least = each.peak <= bytes ? std::min(least, each.cost) : least;
  return least;
}

TEST(BranchAndBound, FindsTheCheapestOfAllPlacementsThatFit) {
  int64_t compared = 0;
  int64_t dearer = 0;  // than without a limit
  int64_t none = 0;
  for (uint64_t seed = 0; seed < 150; ++seed) {
    OwnedModel owned(random_logical_plan(seed, 1 + seed % 2, 2), ia::Grid::of_sites(2), cost::Objective::kSeconds);
    const model::PlacementModel model = owned.model();
    if (!is_searchable(model)) continue;
    const resharding::ReshardingModel resharding(model);
    const Enumeration enumeration(owned, resharding);
    if (!enumeration.complete() || enumeration.all().empty()) continue;
    std::set<int64_t> limits;
    for (const auto& each : enumeration.all()) limits.insert(each.peak);
    limits = {*limits.begin() - 1, *limits.begin(), *std::next(limits.begin(), limits.size() / 2), *limits.rbegin()};
    for (const int64_t bytes : limits) {
      const double least = least_within(enumeration.all(), bytes);
      const MessagePassing bound(resharding.problem());
      const auto found = branch_and_bound(model, resharding, bound, bytes, min_sum::kForbidden);
      ASSERT_TRUE(found.complete);
      ASSERT_EQ(found.best.has_value(), least < min_sum::kForbidden);
      ++compared;
      if (!found.best) {
        ++none;
        continue;
      }
      const auto same = std::find_if(enumeration.all().begin(), enumeration.all().end(), [&](const auto& each) {
        return each.choice.strategies == found.best->strategies && each.choice.staged == found.best->staged;
      });
      ASSERT_NE(same, enumeration.all().end());
      EXPECT_LE(same->peak, bytes);
      EXPECT_DOUBLE_EQ(same->cost, least) << owned.plan.text();
      dearer += least > least_within(enumeration.all(), *limits.rbegin()) ? 1 : 0;
    }
  }
  EXPECT_GT(compared, 100);
  EXPECT_GT(dearer, 3);
  EXPECT_GT(none, 10);
}

}  // namespace
}  // namespace joinsum::optimizer::solvers

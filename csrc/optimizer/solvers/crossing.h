#pragma once

#include <vector>

#include "optimizer/resharding/resharding_problem.h"

namespace joinsum::optimizer::solvers {

/// The best of all choices that take each vertex's strategy from one of two: no more expensive than either, unless that
/// is forbidden. So it combines what two plans do well in different parts of the graph.
///
/// The vertices in which the two differ are binary variables of a min-sum problem. Where its eliminations would read
/// too many entries, and where a value has too many such members, so that it counts each of them alone, the result may
/// miss the best.
std::vector<size_t> crossover(const resharding::ReshardingProblem& problem, const std::vector<size_t>& first,
                              const std::vector<size_t>& second);

/// The best choice of strategies found so far.
class Incumbent {
 public:
  Incumbent(const resharding::ReshardingProblem& problem, min_sum::Deadline deadline)
      : problem_(problem), deadline_(deadline) {}

  /// Adopts `strategies`, crossed with the best so far and (if `improves`) improved one vertex at a time, if that costs
  /// less.
  void consider(std::vector<size_t> strategies, bool improves = true);
  bool found() const { return cost_ < min_sum::kForbidden; }
  const std::vector<size_t>& strategies() const { return strategies_; }
  double cost() const { return cost_; }

 private:
  const resharding::ReshardingProblem& problem_;
  min_sum::Deadline deadline_;
  std::vector<size_t> strategies_;
  double cost_ = min_sum::kForbidden;
};

}  // namespace joinsum::optimizer::solvers

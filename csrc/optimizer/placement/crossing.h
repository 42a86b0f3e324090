#pragma once

#include <vector>

#include "optimizer/placement/delivery_problem.h"

namespace joinsum::optimizer {

/// The best of all choices that take each vertex' mode from one of two: no dearer than either, neither of which is
/// forbidden. So what two plans do well in different places comes together.
///
/// The vertices in which the two differ are variables of two values, which elimination solves. It keeps the first
/// choice's mode of a vertex whose elimination would look at too many entries, and takes the members of a value that
/// very many of them make or read one by one; then the best is only nearly found.
std::vector<size_t> crossed(const DeliveryProblem& problem, const std::vector<size_t>& first,
                            const std::vector<size_t>& second);

/// The best choice of modes of a problem so far.
class BestChoice {
 public:
  BestChoice(const DeliveryProblem& problem, min_sum::Deadline deadline) : problem_(problem), deadline_(deadline) {}

  /// Takes what `modes`, changed one at a time while that gains unless `improves` is false, has that is better.
  void look_at(std::vector<size_t> modes, bool improves = true);
  bool found() const { return cost_ < kForbidden; }
  const std::vector<size_t>& modes() const { return modes_; }
  double cost() const { return cost_; }

 private:
  const DeliveryProblem& problem_;
  min_sum::Deadline deadline_;
  std::vector<size_t> modes_;
  double cost_ = kForbidden;
};

}  // namespace joinsum::optimizer

#pragma once

#include <vector>

#include "sparse/kernels/nest/loop_plan.h"

namespace joinsum::sparse::kernels::nest {

/// Runs the loops of a nest up to the innermost one, or those that are merged, which the class below it runs.
class Nest {
 public:
  explicit Nest(const NestPlan& plan);
  virtual ~Nest() = default;

  /// Visits the coordinates of the outermost loop in [lower, upper).
  void run(int64_t lower, int64_t upper);

 protected:
  /// The innermost loops; the first of them over [lower, upper) of its coordinates.
  virtual void innermost(int64_t lower, int64_t upper) = 0;
  /// Around all visits of one element of the result, or of one of its fibers: the first `prefix` loops stand.
  virtual void begin_element() {}
  virtual void end_element() {}

  /// The coordinates of the loops that stand.
  const std::vector<int64_t>& coordinates() const { return coordinates_; }
  const std::vector<int64_t>& positions() const { return positions_; }
  /// Where the loops that stand have come to in the result's workspace.
  int64_t base() const { return base_[plan_.innermost]; }

 private:
  void loop(int64_t depth, int64_t lower, int64_t upper);
  void walk_one(int64_t depth, int64_t lower, int64_t upper);
  void walk_union(int64_t depth, int64_t lower, int64_t upper);
  void visit(int64_t depth, int64_t coordinate);

  const NestPlan& plan_;
  std::vector<int64_t> positions_;
  std::vector<int64_t> coordinates_;
  std::vector<int64_t> base_;                  ///< before each loop
  std::vector<std::vector<Search>> searches_;  ///< of each loop's participants
  std::vector<std::vector<Walk>> walks_;
};

}  // namespace joinsum::sparse::kernels::nest

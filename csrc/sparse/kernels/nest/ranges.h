#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "sparse/kernels/nest/loop_plan.h"

namespace joinsum::sparse::kernels::nest {

/// Stored entries below the first levels of operands, as the coordinate of their loop grows.
class EntriesBelow {
 public:
  /// Adds an operand by its levels, the first of which is at the loop that is cut.
  void add(std::vector<LevelView> levels) { operands_.push_back(std::move(levels)); }

  /// Entries below coordinates less than this one.
  int64_t before(int64_t coordinate) const;
  /// Cuts [0, extent) in at most `count` ranges of about as many entries: 0 = first < ... = extent.
  std::vector<int64_t> cut(int64_t extent, int64_t count) const;

 private:
  std::vector<std::vector<LevelView>> operands_;
};

/// Runs task(worker, 0..tasks) on so many threads, each of which takes the next one; this thread is worker 0. Raises
/// again what the first of the failed tasks raised.
void run_tasks(int threads, int64_t tasks, const std::function<void(int, int64_t)>& task);

}  // namespace joinsum::sparse::kernels::nest

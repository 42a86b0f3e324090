#pragma once

#include <cstdint>
#include <vector>

#include "sparse/kernels/nest/level_view.h"

namespace joinsum::sparse::kernels::nest {

/// An operand that has a level at a loop.
struct Participant {
  int64_t operand = 0;
  LevelView level;
  int64_t above = 0;  ///< where the entry of the level above is among the positions; that of this level follows
  bool required = false;
};

/// One loop with the levels it reads: first those of its walkers, then those looked up, required ones first.
struct LoopPlan {
  int64_t extent = 0;
  int64_t walkers = 0;
  int64_t stride = 0;  ///< of the result's workspace along this loop, 0 where it is none of its axes
  std::vector<Participant> participants;
};

/// A kernel's loops and where a run keeps the entries that the operands are at: for each operand its root, which is
/// entry 0 or -1 for a scalar that is not stored, and one for each level.
struct NestPlan {
  std::vector<LoopPlan> loops;
  std::vector<int64_t> positions;         ///< at the start: roots 0 or -1, all others -1
  std::vector<int64_t> last;              ///< for each operand, where the entry of its last level is
  std::vector<int64_t> required_scalars;  ///< positions without whose entry no visit matters
  int64_t prefix = 0;                     ///< after so many loops an element, or a fiber of the result, begins
  int64_t innermost = 0;                  ///< the last loop, or the first of those that are merged (`MergedLoops`)
};

}  // namespace joinsum::sparse::kernels::nest

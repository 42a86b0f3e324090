#pragma once

#include "ia/type.h"

namespace joinsum::ia::analysis {

/// What the stages of a move amount to, in elements.
struct Volume {
  int64_t reduce = 0;
  int64_t gather = 0;
  int64_t copy = 0;
  /// Received by the site that receives most in a stage, summed over the stages; shares of a reduction count as if they
  /// were equal.
  int64_t busiest = 0;
  int64_t stages = 0;  ///< that move anything
  int64_t elements() const { return reduce + gather + copy; }
};

/// The volume of `exchange(source, target)`, in closed form where holdings are regular: what planners call often.
Volume volume(const PhysicalType& source, const PhysicalType& target);

}  // namespace joinsum::ia::analysis

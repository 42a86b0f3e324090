#pragma once

#include "optimizer/min_sum/candidates.h"

namespace joinsum::optimizer::min_sum {

/// Improves an assignment (positions in the domains) by changing one variable or one pair at a time.
void improve(const Candidates& candidates, Values& choices, const Deadline& deadline);

}  // namespace joinsum::optimizer::min_sum

#pragma once

#include "optimizer/eindecomp/problem.h"

namespace joinsum::optimizer::eindecomp {

/// Chooses vectors path by path: the longest path of open vertices is solved together, beside what is chosen already;
/// then the next longest one. A path whose tables over pairs have more than `pair_entries` is cut short. Then all paths
/// are solved again, beside all others, while that gains. Past the deadline the vertices that are still open take their
/// best vector one by one.
/// Source: EinDecomp paper, section 8.4, which does not charge the moves between paths; here they are
/// charged as soon as both ends are chosen.
Choices linearise(const PartitionProblem& problem, const min_sum::Limits& limits, double pair_entries);

}  // namespace joinsum::optimizer::eindecomp

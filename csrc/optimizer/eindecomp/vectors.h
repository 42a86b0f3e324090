#pragma once

#include <cstdint>
#include <vector>

#include "base/dims.h"

namespace joinsum::optimizer::eindecomp {

/// The least power of two that is not below `calls`. Raises PlanError unless 1 <= calls <= 2^30.
int64_t power_of_two_calls(int64_t calls);

/// The greatest power of two that divides `extent`; 1 where it is 0, since an empty axis is one part.
int64_t greatest_parts(int64_t extent);

/// Kernel calls of an einsum whose labels have these extents: `power_of_two_calls`, or the most that parts which are
/// powers of two and divide their extents reach.
int64_t reachable_calls(const Dims& extents, int64_t calls);

/// The partition vectors that the paper considers: one part count per label, each a power of two that divides the
/// label's extent, with the product `reachable_calls`. The first labels are cut most in the first vectors. Raises
/// PlanError above a million vectors.
/// Source: EinDecomp paper, section 8.1; N = log2 calls and D labels that divide far enough have (N+D-1)!/(N!(D-1)!)
/// vectors. What to do where no vector reaches `calls` is ours.
std::vector<Dims> viable_vectors(const Dims& extents, int64_t calls);

}  // namespace joinsum::optimizer::eindecomp

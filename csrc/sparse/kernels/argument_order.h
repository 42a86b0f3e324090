#pragma once

#include "sparse/kernels/kernel.h"

namespace joinsum::sparse::kernels {

/// Orders the arguments of sums, products and the like by the last loop that each depends on, those of one loop with
/// its walkers first: then what does not change in inner loops is computed outside of them. All engines compute
/// arguments from the left to the right, so that their results are equal bit by bit. What is compared keeps its order,
/// and so do kernels that reduce nothing, whose results others may compare: the same expression must round alike in
/// each.
void order_arguments(Kernel& kernel);

}  // namespace joinsum::sparse::kernels

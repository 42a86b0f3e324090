#pragma once

#include "ia/nodes.h"

namespace joinsum::ia {

/// The same plan, in which calls run at once (`kernels::Call::uncut`) wherever no grid axis divides a letter that they
/// then need whole. What only their parts have read is left out.
Plan with_uncut_calls(const Plan& plan);

}  // namespace joinsum::ia

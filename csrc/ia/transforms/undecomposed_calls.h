#pragma once

#include "ia/nodes.h"

namespace joinsum::ia::transforms {

/// The same plan, in which calls run at once (`kernels::call::Call::undecomposed`) wherever no grid axis divides a
/// letter that they then need whole. What only their parts have read is left out.
Plan with_undecomposed_calls(const Plan& plan);

}  // namespace joinsum::ia::transforms

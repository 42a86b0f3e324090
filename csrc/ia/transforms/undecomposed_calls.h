#pragma once

#include "ia/nodes.h"

namespace joinsum::ia::transforms {

/// The same plan, in which calls run undecomposed (`kernels::call::Call::undecomposed`) wherever no grid axis divides a
/// letter that they then need undivided. What only the decomposition has read is left out.
Plan with_undecomposed_calls(const Plan& plan);

}  // namespace joinsum::ia::transforms

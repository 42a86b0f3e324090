#pragma once

#include "einsum/nodes.h"

namespace joinsum::einsum::transforms {

/// The same plan, in which every call that has an undecomposed one is that (`kernels::call::Call::undecomposed`). What
/// only the decomposition has read is left out.
Plan with_undecomposed_calls(const Plan& plan);

}  // namespace joinsum::einsum::transforms

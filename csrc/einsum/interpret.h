#pragma once

#include "einsum/nodes.h"
#include "kernels/reference/reference.h"

namespace joinsum::einsum {

/// Runs a plan by the definition, naively, on doubles: the oracle of every other way. Also checks each result against
/// its type.
std::map<std::string, kernels::reference::Array> interpret(
    const Plan& plan, const std::map<std::string, kernels::reference::Array>& inputs,
    const kernels::table::Scalars& scalars = {});

}  // namespace joinsum::einsum

#pragma once

#include "einsum/nodes.h"
#include "kernels/reference.h"

namespace joinsum::einsum {

/// Runs a plan by the definition, naively, on doubles: the oracle of every other way. Also checks each result against
/// its type.
std::map<std::string, kernels::Array> interpret(const Plan& plan, const std::map<std::string, kernels::Array>& inputs,
                                                const kernels::Scalars& scalars = {});

}  // namespace joinsum::einsum

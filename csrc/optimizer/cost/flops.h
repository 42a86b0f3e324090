#pragma once

#include "ia/exchange.h"
#include "ia/nodes.h"

namespace joinsum::optimizer {

/// Floating-point operations of a local operator on the site that does most; `fused` tells of an aggregate whose join
/// is computed with it, and whose sum the join's figure holds already. Regular holdings are counted in closed form.
int64_t busiest_flops(const ia::Node& node, bool fused);

/// Folds of a move's pending partials, on the site that does most.
int64_t busiest_flops(const ia::Exchange& exchange, int64_t sites);

}  // namespace joinsum::optimizer

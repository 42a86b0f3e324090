#pragma once

#include "ia/analysis/exchange.h"
#include "ia/nodes.h"

namespace joinsum::ia::analysis {

/// Floating-point operations of a local operator on the busiest site. `fused`: an aggregate that runs as one with its
/// join, whose figure then includes the sum. Regular holdings are counted in closed form.
int64_t busiest_flops(const Node& node, bool fused);

/// Floating-point operations that reduce a move's partials, on the busiest site.
int64_t busiest_flops(const Exchange& exchange, int64_t sites);

}  // namespace joinsum::ia::analysis

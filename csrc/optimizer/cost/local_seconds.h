#pragma once

#include "ia/nodes.h"
#include "optimizer/cost/profile.h"

namespace joinsum::optimizer {

/// Seconds of a local operator on the site that does most, beyond those of any node, by the kernels that the executor
/// calls: one on a whole box where parts of an axis are treated alike, else one per key. `fused` tells of an aggregate
/// whose join is computed with it; the join itself then takes nothing. Negative where the profile does not say.
double local_seconds(const ia::Node& node, bool fused, const Profile& profile);

}  // namespace joinsum::optimizer

#pragma once

#include "ia/nodes.h"
#include "optimizer/cost/profile.h"

namespace joinsum::optimizer::cost {

/// Seconds of a local operator on the busiest site, beyond those of any node, by the kernels that the executor calls:
/// one on a box where a kernel treats all tiles of an axis alike, otherwise one per key. `fused`: an aggregate that
/// runs as one with its join; the join itself then takes nothing. Negative where the profile lacks a measurement.
double local_seconds(const ia::Node& node, bool fused, const Profile& profile);

}  // namespace joinsum::optimizer::cost

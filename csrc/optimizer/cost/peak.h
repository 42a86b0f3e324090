#pragma once

#include <unordered_map>
#include <vector>

#include "ia/nodes.h"

namespace joinsum::optimizer {

/// Bytes of messages that each site has received at once, at most, during a move.
using ReceivedBytes = std::unordered_map<const ia::Node*, std::vector<int64_t>>;

/// Most bytes that one site keeps while each node runs.
using PeakBytes = std::unordered_map<const ia::Node*, int64_t>;

/// What the site that needs most keeps while `plan` runs in its order: the inputs throughout, results from their node
/// to their last use (outputs to the end), and the messages of the move under way. Fused joins keep nothing and have no
/// entry; an output tied to an input overwrites it where its node is elementwise and reads that input last. Raises
/// PlanError beyond `limit`.
PeakBytes peak_bytes(const ia::Plan& plan, const ReceivedBytes& received, std::optional<int64_t> limit);

}  // namespace joinsum::optimizer

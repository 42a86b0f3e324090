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

/// The moment in which one site keeps most.
struct Peak {
  int64_t bytes = 0;
  int64_t site = 0;
  std::vector<std::pair<const ia::Node*, int64_t>> kept;  ///< results there, with their bytes on that site
};

/// The peak of `plan` under the same rules.
Peak peak_of(const ia::Plan& plan, const ReceivedBytes& received);

}  // namespace joinsum::optimizer

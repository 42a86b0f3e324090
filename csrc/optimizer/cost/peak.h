#pragma once

#include <unordered_map>
#include <vector>

#include "ia/analysis/materialization.h"
#include "ia/analysis/schedule.h"
#include "ia/nodes.h"

namespace joinsum::optimizer::cost {

/// Bytes of messages that each site has received at once, at most, during a move.
using ReceivedBytes = std::unordered_map<const ia::Node*, std::vector<int64_t>>;

/// The memory that a plan takes while it runs.
struct Peak {
  int64_t bytes = 0;  ///< of the site that needs most, at the moment when it does
  int64_t site = 0;
  std::vector<std::pair<const ia::Node*, int64_t>> held;  ///< results in memory then, with their bytes on that site
  /// The most bytes that one site holds while each node runs. Fused joins hold nothing and have no entry.
  std::unordered_map<const ia::Node*, int64_t> by_node;
};

/// The memory that `plan` takes as it is scheduled. A site holds the inputs throughout, results from their node to
/// their last use (outputs to the end), and the messages of the moves under way. An output tied to an input overwrites
/// it where its node is elementwise and reads that input last. Raises PlanError where a site would need more than
/// `limit`.
Peak peak_of(const ia::Plan& plan, const ia::analysis::Materialization& materialization,
             const ia::analysis::Schedule& schedule, const ReceivedBytes& received, std::optional<int64_t> limit = {});

}  // namespace joinsum::optimizer::cost

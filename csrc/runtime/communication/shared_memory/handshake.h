#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/communication/shared_memory/channels.h"

namespace joinsum::runtime::communication::shared_memory {

/// Every rank's bytes, given this rank's; each rank calls it equally often.
using Gather = std::function<std::vector<std::string>(const std::string& own)>;

/// What ranks of a group share.
struct Connections {
  std::unique_ptr<Channels> channels;  ///< none where this rank shares memory with no other
  int64_t pairs = 0;                   ///< of ranks that share memory, in the whole group: equal on all ranks
};

/// Connects those of `sites` ranks that are on one host and in one network namespace, and can map each other's memory.
/// A rank that is not `enabled` offers none. Collective.
Connections connect(int64_t site, int64_t sites, bool enabled, const Gather& gather);

}  // namespace joinsum::runtime::communication::shared_memory

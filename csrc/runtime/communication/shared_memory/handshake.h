#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/communication/shared_memory/channels.h"

namespace joinsum::runtime::communication::shared_memory {

/// Every rank's bytes, given this rank's; each rank calls it equally often.
using Gather = std::function<std::vector<std::string>(const std::string& own)>;

/// Leaves in `found` those peers that have found this rank, too; gives the number of pairs of ranks in the whole group
/// that have found each other, which is equal on all ranks. Collective.
template <class Link>
int64_t keep_mutual(std::map<int64_t, Link>& found, int64_t site, int64_t sites, const Gather& gather) {
  std::string own(sites, 0);
  for (const auto& [peer, link] : found) own[peer] = 1;
  const std::vector<std::string> all = gather(own);
  int64_t pairs = 0;
  for (int64_t left = 0; left < sites; ++left) {
    for (int64_t right = 0; right < left; ++right) {
      const bool both = all[left].at(right) != 0 && all[right].at(left) != 0;
      if (both) ++pairs;
      if (!both && left == site) found.erase(right);
      if (!both && right == site) found.erase(left);
    }
  }
  return pairs;
}

/// What ranks of a group share.
struct Connections {
  std::unique_ptr<Channels> channels;  ///< none where this rank shares memory with no other
  int64_t pairs = 0;                   ///< of ranks that share memory, in the whole group: equal on all ranks
};

/// Connects those of `sites` ranks that are on one host and in one network namespace, and can map each other's memory.
/// A rank that is not `enabled` offers none. Collective.
Connections connect(int64_t site, int64_t sites, bool enabled, const Gather& gather);

}  // namespace joinsum::runtime::communication::shared_memory

#pragma once

#include <memory>
#include <set>

#include "runtime/communication/links/links.h"
#include "runtime/communication/shared_memory/handshake.h"

namespace joinsum::runtime::communication::sockets {

/// The sockets of a rank.
struct Connections {
  std::unique_ptr<links::Links> links;  ///< none where this rank has a socket to no other
  int64_t pairs = 0;                    ///< of ranks that have sockets, in the whole group: equal on all ranks
};

/// Connects this rank with all of `sites` ranks but those that it has `reached` by shared memory, each pair by a socket
/// for each channel, on the network interface that Gloo uses. A pair that cannot be connected within seconds has none,
/// and so has a rank that is not `enabled`, or whose environment has Gloo use another transport than TCP, which may
/// encrypt. Collective.
Connections connect(int64_t site, int64_t sites, bool enabled, const std::set<int64_t>& reached,
                    const shared_memory::Gather& gather);

}  // namespace joinsum::runtime::communication::sockets

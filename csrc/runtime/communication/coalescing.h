#pragma once

#include <functional>
#include <vector>

#include "runtime/communication/transport.h"
#include "runtime/communication/watch/peer_watch.h"

namespace joinsum::runtime::communication {

/// Messages between one pair of sites that travel as one buffer, one after another: large messages alone, from and to
/// their own memory, small ones together.
struct CoalescedMessage {
  int64_t peer = 0;
  std::vector<size_t> messages;  ///< positions in the exchange's list
  int64_t bytes = 0;
  at::Tensor buffer;
};

/// What `site` sends (or receives), without buffers. Both ends of a pair get the same list in the same order.
std::vector<CoalescedMessage> coalesce(const std::vector<Message>& messages, int64_t site, bool sending);

/// One contiguous flat array with the arrays of the messages, on the device of `options`; the array itself where there
/// is one and it is that already.
at::Tensor pack(const CoalescedMessage& coalesced, const std::vector<Message>& messages,
                const at::TensorOptions& options, const std::function<at::Tensor(size_t)>& payload);

/// Copies what was received into the flat arrays at its messages' positions, but for an array that is the buffer.
void unpack(const CoalescedMessage& coalesced, const std::vector<at::Tensor>& arrays);

std::vector<watch::PeerBuffer> buffers_of(const std::vector<CoalescedMessage>& list);
int64_t bytes_of(const std::vector<CoalescedMessage>& list);

}  // namespace joinsum::runtime::communication

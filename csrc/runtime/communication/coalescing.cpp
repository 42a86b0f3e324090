#include "runtime/communication/coalescing.h"

#include <map>

#include "base/check.h"

namespace joinsum::runtime::communication {
namespace {

/// Messages of at least this size travel alone.
constexpr int64_t kAloneBytes = int64_t{64} << 10;
constexpr int64_t kMostCoalescedBytes = int64_t{1} << 20;

}  // namespace

std::vector<CoalescedMessage> coalesce(const std::vector<Message>& messages, int64_t site, bool sending) {
  std::vector<CoalescedMessage> out;
  std::map<int64_t, size_t> open;  // by peer
  for (size_t i = 0; i < messages.size(); ++i) {
    const Message& message = messages[i];
    if ((sending ? message.from : message.to) != site || message.bytes == 0) continue;
    const int64_t peer = sending ? message.to : message.from;
    if (message.bytes >= kAloneBytes) {
      out.push_back({peer, {i}, message.bytes, {}});
      continue;
    }
    const auto [at, fresh] = open.try_emplace(peer, out.size());
    const bool full = !fresh && out[at->second].bytes + message.bytes > kMostCoalescedBytes;
    if (full) at->second = out.size();
    if (fresh || full) out.push_back({peer, {}, 0, {}});
    CoalescedMessage& coalesced = out[at->second];
    coalesced.messages.push_back(i);
    coalesced.bytes += message.bytes;
  }
  return out;
}

at::Tensor pack(const CoalescedMessage& coalesced, const std::vector<Message>& messages,
                const at::TensorOptions& options, const std::function<at::Tensor(size_t)>& payload) {
  std::vector<at::Tensor> flat;
  for (const size_t i : coalesced.messages) {
    const at::Tensor array = payload(i).detach();
    JOINSUM_CHECK(static_cast<int64_t>(array.nbytes()) == messages[i].bytes, "payload of a message has the wrong size");
    JOINSUM_CHECK(array.dtype() == options.dtype(), "payload of a message has the wrong dtype");
    flat.push_back(array.resolve_conj().resolve_neg().reshape({-1}));
  }
  return (flat.size() == 1 ? flat[0].contiguous() : at::cat(flat)).to(options.device());
}

void unpack(const CoalescedMessage& coalesced, const std::vector<Message>& messages, at::Device device,
            std::vector<at::Tensor>& arrays) {
  const at::Tensor buffer = coalesced.buffer.to(device);
  int64_t begin = 0;
  for (const size_t i : coalesced.messages) {
    const int64_t elements = messages[i].bytes / static_cast<int64_t>(buffer.element_size());
    // A copy, so that one small array does not retain the memory of all.
    arrays[i] = coalesced.messages.size() == 1 ? buffer : buffer.narrow(0, begin, elements).clone();
    begin += elements;
  }
}

std::vector<watch::PeerBuffer> buffers_of(const std::vector<CoalescedMessage>& list) {
  std::vector<watch::PeerBuffer> out;
  for (const CoalescedMessage& coalesced : list) out.push_back({coalesced.peer, coalesced.buffer});
  return out;
}

int64_t bytes_of(const std::vector<CoalescedMessage>& list) {
  int64_t bytes = 0;
  for (const CoalescedMessage& coalesced : list) bytes += coalesced.bytes;
  return bytes;
}

}  // namespace joinsum::runtime::communication

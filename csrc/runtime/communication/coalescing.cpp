#include "runtime/communication/coalescing.h"

#include <map>

#include "base/check.h"
#include "ia/analysis/schedule.h"

namespace joinsum::runtime::communication {
namespace {

constexpr int64_t kMostCoalescedBytes = int64_t{4} << 20;

/// A message's array, which must have its size and the dtype of `options`.
at::Tensor checked(const at::Tensor& array, const Message& message, const at::TensorOptions& options) {
  JOINSUM_CHECK(static_cast<int64_t>(array.nbytes()) == message.bytes, "payload of a message has the wrong size");
  JOINSUM_CHECK(array.dtype() == options.dtype(), "payload of a message has the wrong dtype");
  return array.detach();
}

}  // namespace

std::vector<CoalescedMessage> coalesce(const std::vector<Message>& messages, int64_t site, bool sending) {
  std::vector<CoalescedMessage> out;
  std::map<int64_t, size_t> open;  // by peer
  for (size_t i = 0; i < messages.size(); ++i) {
    const Message& message = messages[i];
    if ((sending ? message.from : message.to) != site || message.bytes == 0) continue;
    const int64_t peer = sending ? message.to : message.from;
    if (message.bytes >= ia::analysis::kSeparateBytes) {
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
  if (coalesced.messages.size() == 1) {
    const size_t i = coalesced.messages.front();
    const at::Tensor array = checked(payload(i), messages[i], options);
    return array.resolve_conj().resolve_neg().reshape({-1}).contiguous().to(options.device());
  }
  at::Tensor buffer = at::empty({coalesced.bytes / static_cast<int64_t>(options.dtype().itemsize())}, options);
  int64_t begin = 0;
  for (const size_t i : coalesced.messages) {
    const at::Tensor array = checked(payload(i), messages[i], options);
    buffer.narrow(0, begin, array.numel()).view(array.sizes()).copy_(array);
    begin += array.numel();
  }
  return buffer;
}

void unpack(const CoalescedMessage& coalesced, const std::vector<at::Tensor>& arrays) {
  int64_t begin = 0;
  for (const size_t i : coalesced.messages) {
    at::Tensor array = arrays[i];
    if (!array.is_same(coalesced.buffer)) array.copy_(coalesced.buffer.narrow(0, begin, array.numel()));
    begin += array.numel();
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

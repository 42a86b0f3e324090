#include "runtime/communication/shared_memory/channels.h"

#include <algorithm>

#include "base/check.h"

namespace joinsum::runtime::communication::shared_memory {
namespace {

using Clock = std::chrono::steady_clock;

/// What one end copies before it shows the other one: both then copy at the same time. 128 and 256 KiB are faster than
/// 64 and 512.
constexpr int64_t kChunk = int64_t{256} << 10;
/// Several times what it takes to wake a process and to answer it. Ranks that answer each other otherwise sleep at
/// every message once one of them has: a message then takes 600 us in place of 100.
constexpr std::chrono::microseconds kSpin{500};

/// Between two looks; some half a microsecond.
constexpr int kPauses = 16;

/// Precedes each message in its ring.
struct alignas(kLine) Frame {
  int64_t size = 0;
};

/// A moment in which the thread leaves the core's units to the core's other thread.
void relax() {
#if defined(__x86_64__) || defined(__i386__)
  for (int i = 0; i < kPauses; ++i) __builtin_ia32_pause();
#elif defined(__aarch64__)
  for (int i = 0; i < kPauses; ++i) asm volatile("yield");
#endif
}

Bell& bell_in(const Mapping& memory) { return *reinterpret_cast<Bell*>(memory.start()); }

int64_t offset_of(const std::vector<int64_t>& capacities, size_t channel) {
  int64_t offset = 0;
  for (size_t i = 0; i < channel; ++i) offset += static_cast<int64_t>(sizeof(RingCounts)) + capacities[i];
  return offset;
}

}  // namespace

int64_t Rings::bytes(const std::vector<int64_t>& capacities) {
  return (offset_of(capacities, capacities.size()) + kMappingStep - 1) / kMappingStep * kMappingStep;
}

RingWriter Rings::writer(char* start, const std::vector<int64_t>& capacities, size_t channel) {
  char* const ring = start + offset_of(capacities, channel);
  return {*reinterpret_cast<RingCounts*>(ring), ring + sizeof(RingCounts), capacities[channel]};
}

RingReader Rings::reader(char* start, const std::vector<int64_t>& capacities, size_t channel) {
  char* const ring = start + offset_of(capacities, channel);
  return {*reinterpret_cast<RingCounts*>(ring), ring + sizeof(RingCounts), capacities[channel]};
}

Channels::Channels(std::vector<int64_t> capacities, Mapping own_bell, std::map<int64_t, PeerMemory> peers, bool spin)
    : own_bell_(std::move(own_bell)),
      rounds_of_a_ring_(std::max<int64_t>(*std::max_element(capacities.begin(), capacities.end()) / kChunk, 1)),
      spin_(spin) {
  for (auto& [site, memory] : peers) {
    Peer peer{std::move(memory), {}, {}};
    for (size_t channel = 0; channel < capacities.size(); ++channel) {
      peer.sends.push_back({Rings::writer(peer.memory.outgoing.start(), capacities, channel), {}});
      peer.receives.push_back({Rings::reader(peer.memory.incoming.start(), capacities, channel), {}});
    }
    peers_.emplace(site, std::move(peer));
  }
}

std::shared_ptr<Transfer> Channels::send(int64_t peer, size_t channel, Transfer message) {
  return post(peers_.at(peer).sends.at(channel).posted, std::move(message));
}

std::shared_ptr<Transfer> Channels::receive(int64_t peer, size_t channel, Transfer message) {
  return post(peers_.at(peer).receives.at(channel).posted, std::move(message));
}

std::shared_ptr<Transfer> Channels::post(std::deque<std::shared_ptr<Transfer>>& queue, Transfer message) {
  ++outstanding_;
  return queue.emplace_back(std::make_shared<Transfer>(std::move(message)));
}

bool Channels::advance() {
  bool moved = false;
  for (auto& [site, peer] : peers_) {
    bool moved_here = false;
    for (auto& queue : peer.receives) moved_here |= advance_receives(queue, site);
    for (auto& queue : peer.sends) moved_here |= advance_sends(queue);
    if (moved_here) bell_in(peer.memory.bell).ring();
    moved |= moved_here;
  }
  return moved;
}

bool Channels::advance_sends(Queue<RingWriter>& queue) {
  int64_t left = kChunk;
  while (!queue.posted.empty() && left > 0 && queue.ring.room(kLine) > 0) {
    Transfer& message = *queue.posted.front();
    if (!message.begun) {
      const Frame frame{message.size};
      queue.ring.write(reinterpret_cast<const char*>(&frame), sizeof(Frame));
      message.begun = true;
    }
    const int64_t copied =
        queue.ring.write(message.bytes + message.moved, std::min(left, message.size - message.moved));
    left -= round_up_to_line(copied);
    count_moved(queue.posted, copied);
  }
  return queue.ring.publish();
}

bool Channels::advance_receives(Queue<RingReader>& queue, int64_t peer) {
  int64_t left = kChunk;
  // A message without elements is its frame alone.
  while (!queue.posted.empty() && left > 0 && queue.ring.available(kLine) > 0) {
    Transfer& message = *queue.posted.front();
    if (!message.begun) {
      Frame frame;
      queue.ring.read(reinterpret_cast<char*>(&frame), sizeof(Frame));
      if (frame.size != message.size)
        throw LinkError(peer, concatenate("it sent another message: bytes=", frame.size, ", expected=", message.size));
      message.begun = true;
    }
    const int64_t copied = queue.ring.read(message.bytes + message.moved, std::min(left, message.size - message.moved));
    left -= round_up_to_line(copied);
    count_moved(queue.posted, copied);
  }
  return queue.ring.publish();
}

void Channels::count_moved(std::deque<std::shared_ptr<Transfer>>& queue, int64_t bytes) {
  Transfer& message = *queue.front();
  message.moved += bytes;
  if (message.moved < message.size) return;
  message.done = true;
  queue.pop_front();
  --outstanding_;
}

bool Channels::changed() {
  for (auto& [site, peer] : peers_) {
    for (auto& queue : peer.receives) {
      if (!queue.posted.empty() && queue.ring.available(kLine) > 0) return true;
    }
    for (auto& queue : peer.sends) {
      if (!queue.posted.empty() && queue.ring.room(kLine) > 0) return true;
    }
  }
  return false;
}

void Channels::wait_for_change(std::chrono::microseconds longest) {
  const auto start = Clock::now();
  while (spin_ && Clock::now() - start < std::min(kSpin, longest)) {
    if (changed()) return;
    relax();
  }
  bell_in(own_bell_).sleep_unless([&] { return changed(); }, longest);
}

void Channels::close() {
  for (auto& [site, peer] : peers_) {
    for (auto& queue : peer.receives) queue.posted.clear();
    for (auto& queue : peer.sends) queue.posted.clear();
  }
  outstanding_ = 0;
}

}  // namespace joinsum::runtime::communication::shared_memory

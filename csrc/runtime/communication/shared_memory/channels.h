#pragma once

#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "runtime/communication/links/links.h"
#include "runtime/communication/shared_memory/bell.h"
#include "runtime/communication/shared_memory/memory_file.h"
#include "runtime/communication/shared_memory/ring.h"

namespace joinsum::runtime::communication::shared_memory {

using links::LinkError;
using links::Links;
using links::Transfer;

/// The rings of one direction between two ranks, one for each channel.
struct Rings {
  /// Bytes of the memory they lie in.
  static int64_t bytes(const std::vector<int64_t>& capacities);
  static RingWriter writer(char* start, const std::vector<int64_t>& capacities, size_t channel);
  static RingReader reader(char* start, const std::vector<int64_t>& capacities, size_t channel);
};

/// What a rank shares with a peer. The reader owns the rings, and each rank its bell.
struct PeerMemory {
  Mapping incoming;
  Mapping outgoing;
  Mapping bell;
};

/// Links to the ranks that share memory with this one.
class Channels final : public Links {
 public:
  /// `capacities` has the bytes of a ring for each channel; `own_bell` starts with the bell of this process, as
  /// PeerMemory::bell does with the peer's. Waits that `spin` look for changes for a moment before they sleep.
  Channels(std::vector<int64_t> capacities, Mapping own_bell, std::map<int64_t, PeerMemory> peers, bool spin);

  bool reaches(int64_t peer) const override { return peers_.contains(peer); }
  std::shared_ptr<Transfer> send(int64_t peer, size_t channel, Transfer message) override;
  std::shared_ptr<Transfer> receive(int64_t peer, size_t channel, Transfer message) override;
  /// At most a chunk of each ring's messages.
  bool advance() override;
  void wait_for_change(std::chrono::microseconds longest) override;
  bool outstanding() const override { return outstanding_ > 0; }
  bool tells_of_end() const override { return false; }
  void close() override;

 protected:
  /// In which a ring of arrays can be filled.
  int64_t rounds() const override { return rounds_of_a_ring_; }

 private:
  template <class Ring>
  struct Queue {
    Ring ring;
    std::deque<std::shared_ptr<Transfer>> posted;
  };
  struct Peer {
    PeerMemory memory;
    std::vector<Queue<RingWriter>> sends;
    std::vector<Queue<RingReader>> receives;
  };

  bool advance_sends(Queue<RingWriter>& queue);
  bool advance_receives(Queue<RingReader>& queue, int64_t peer);
  /// Of the first message of a queue, which leaves it when it is complete.
  void count_moved(std::deque<std::shared_ptr<Transfer>>& queue, int64_t bytes);
  bool changed();
  std::shared_ptr<Transfer> post(std::deque<std::shared_ptr<Transfer>>& queue, Transfer message);

  Mapping own_bell_;
  std::map<int64_t, Peer> peers_;
  int64_t rounds_of_a_ring_;
  bool spin_;
  int64_t outstanding_ = 0;
};

}  // namespace joinsum::runtime::communication::shared_memory

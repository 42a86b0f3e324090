#pragma once

#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <stdexcept>
#include <vector>

#include "runtime/communication/shared_memory/bell.h"
#include "runtime/communication/shared_memory/memory_file.h"
#include "runtime/communication/shared_memory/ring.h"

namespace joinsum::runtime::communication::shared_memory {

/// A message that has been posted. `owner` keeps its memory.
struct Transfer {
  char* bytes = nullptr;
  int64_t size = 0;
  std::shared_ptr<const void> owner;
  int64_t moved = 0;
  bool begun = false;
  bool done = false;
};

/// A peer has sent a message of another size than the one that is expected.
struct Mismatch : std::runtime_error {
  Mismatch(int64_t from, const std::string& text) : std::runtime_error(text), peer(from) {}
  int64_t peer = 0;
};

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

/// Messages to and from the ranks that share memory with this one. On each channel, messages of a pair match in the
/// order of posting. One thread at a time uses this.
class Channels {
 public:
  /// `capacities` has the bytes of a ring for each channel; `own_bell` starts with the bell of this process, as
  /// PeerMemory::bell does with the peer's. Waits that `spin` look for changes for a moment before they sleep.
  Channels(std::vector<int64_t> capacities, Mapping own_bell, std::map<int64_t, PeerMemory> peers, bool spin);

  bool reaches(int64_t peer) const { return peers_.contains(peer); }
  std::shared_ptr<Transfer> send(int64_t peer, size_t channel, Transfer message);
  std::shared_ptr<Transfer> receive(int64_t peer, size_t channel, Transfer message);
  /// Moves what can be moved without waiting, in each round at most a chunk of each ring's messages; false where
  /// nothing could be moved. Raises Mismatch.
  bool advance(int64_t rounds = 1);
  /// Rounds in which a ring of arrays can be filled.
  int64_t rounds_of_a_ring() const { return rounds_of_a_ring_; }
  /// Waits until something can be moved, or somebody rings for nothing, but no longer than `longest`.
  void wait_for_change(std::chrono::milliseconds longest);
  /// Whether messages have been posted that are not complete.
  bool outstanding() const { return outstanding_ > 0; }
  /// Forgets the messages: their memory is not touched any more.
  void clear();

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

  bool advance_all();
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

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

namespace joinsum::runtime::communication::links {

/// A message that has been posted. `owner` keeps its memory.
struct Transfer {
  char* bytes = nullptr;
  int64_t size = 0;
  std::shared_ptr<const void> owner;
  int64_t moved = 0;
  bool begun = false;
  bool done = false;
};

/// A peer has closed its connection, or has sent a message of another size than the one that is expected.
struct LinkError : std::runtime_error {
  LinkError(int64_t from, const std::string& text) : std::runtime_error(text), peer(from) {}
  int64_t peer = 0;
};

/// Messages to and from some of a rank's peers, which the ranks' own threads move: between their computations, and
/// while they wait. On each channel, messages of a pair match in the order of posting. One thread at a time uses this.
class Links {
 public:
  virtual ~Links() = default;
  virtual bool reaches(int64_t peer) const = 0;
  virtual std::shared_ptr<Transfer> send(int64_t peer, size_t channel, Transfer message) = 0;
  virtual std::shared_ptr<Transfer> receive(int64_t peer, size_t channel, Transfer message) = 0;
  /// Moves some of what can be moved without waiting; false where that is nothing. Raises LinkError.
  virtual bool advance() = 0;
  /// As often as something can be moved, but no longer than it takes to move what peers have prepared.
  void advance_far() {
    for (int64_t i = 0; i < rounds() && advance();) ++i;
  }
  /// Waits until something can be moved, or spuriously less, but no longer than `longest`.
  virtual void wait_for_change(std::chrono::microseconds longest) = 0;
  /// Whether messages have been posted that are not complete.
  virtual bool outstanding() const = 0;
  /// Whether `advance` raises, after the last message of a peer that has ended, where more are expected.
  virtual bool tells_of_end() const = 0;
  /// Forgets the messages, whose memory is not touched any more; links that tell of the end do so to the peers.
  virtual void close() = 0;

 protected:
  /// Calls of `advance` after which all has moved that the buffers between two ranks hold.
  virtual int64_t rounds() const = 0;
};

}  // namespace joinsum::runtime::communication::links

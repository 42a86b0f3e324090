#pragma once

#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/communication/links/links.h"

namespace joinsum::runtime::communication::sockets {

using links::LinkError;
using links::Links;
using links::Transfer;

/// A file descriptor, closed at the end.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor();

  bool valid() const { return number_ >= 0; }
  int number() const { return number_; }

 private:
  int number_ = -1;
};

/// Connected sockets by peer, one for each channel, which do not block.
using Sockets = std::map<int64_t, std::vector<Descriptor>>;

/// Links through sockets, which no thread but the rank's own reads or writes. A thread that waits for a socket, as
/// Gloo's, takes the core from a computation at every packet, or, with the priority that gloo_threads.cpp gives it,
/// waits until the computation pauses, and then moves no more than the socket's buffers hold.
class SocketLinks final : public Links {
 public:
  explicit SocketLinks(Sockets sockets);

  bool reaches(int64_t peer) const override { return peers_.contains(peer); }
  std::shared_ptr<Transfer> send(int64_t peer, size_t channel, Transfer message) override;
  std::shared_ptr<Transfer> receive(int64_t peer, size_t channel, Transfer message) override;
  bool advance() override;
  void wait_for_change(std::chrono::microseconds longest) override;
  bool outstanding() const override { return outstanding_ > 0; }
  bool tells_of_end() const override { return true; }
  void close() override;

 protected:
  int64_t rounds() const override;

 private:
  /// A message behind its frame, which says how many bytes it has.
  struct Framed {
    std::shared_ptr<Transfer> transfer;
    int64_t size = 0;   ///< as the frame says
    int64_t moved = 0;  ///< of both
  };
  using Queue = std::deque<Framed>;
  struct Connection {
    Descriptor socket;
    Queue sends;
    Queue receives;
  };
  using Connections = std::vector<Connection>;

  std::shared_ptr<Transfer> post(Queue& queue, Transfer message, bool sending);
  bool advance_sends(Connection& connection, int64_t peer);
  bool advance_receives(Connection& connection, int64_t peer);
  void count_moved(Queue& queue, int64_t bytes, int64_t peer);

  std::map<int64_t, Connections> peers_;
  int64_t outstanding_ = 0;
};

}  // namespace joinsum::runtime::communication::sockets

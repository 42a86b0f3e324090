#include "runtime/communication/sockets/socket_links.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <poll.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <sys/socket.h>
#include <sys/uio.h>

#include "base/check.h"

namespace joinsum::runtime::communication::sockets {
namespace {

/// What one call moves of the messages of a connection, at most.
constexpr int64_t kMostBytes = int64_t{1} << 20;
constexpr size_t kMostPieces = 64;
/// So many times kMostBytes are more than the buffers of a connection hold.
constexpr int64_t kRounds = 16;

constexpr int64_t kFrame = sizeof(int64_t);

/// Stretches of memory that one call reads or writes: what is left of the first messages of a queue, and their frames.
class Pieces {
 public:
  template <class Queue>
  explicit Pieces(Queue& queue) {
    for (auto& message : queue) {
      if (full()) break;
      const int64_t of_frame = std::min(message.moved, kFrame);
      add(reinterpret_cast<char*>(&message.size) + of_frame, kFrame - of_frame);
      const int64_t begin = message.moved - of_frame;
      add(message.transfer->bytes + begin, message.transfer->size - begin);
    }
  }

  msghdr header() {
    msghdr out{};
    out.msg_iov = pieces_.data();
    out.msg_iovlen = count_;
    return out;
  }

 private:
  bool full() const { return count_ + 2 > kMostPieces || bytes_ >= kMostBytes; }
  void add(char* start, int64_t bytes) {
    bytes = std::min(bytes, kMostBytes - bytes_);
    if (bytes == 0) return;
    pieces_[count_++] = {start, static_cast<size_t>(bytes)};
    bytes_ += bytes;
  }

  std::array<iovec, kMostPieces> pieces_;
  size_t count_ = 0;
  int64_t bytes_ = 0;
};

bool would_block(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

std::string reason_of(int error) {
  const bool closed = error == EPIPE || error == ECONNRESET;
  return closed ? "connection closed" : std::system_category().message(error);
}

}  // namespace

Descriptor::~Descriptor() {
  if (valid()) ::close(number_);
}

SocketLinks::SocketLinks(Sockets sockets) {
  for (auto& [peer, channels] : sockets) {
    Connections& connections = peers_[peer];
    for (Descriptor& socket : channels) connections.push_back({std::move(socket), {}, {}});
  }
}

std::shared_ptr<Transfer> SocketLinks::send(int64_t peer, size_t channel, Transfer message) {
  return post(peers_.at(peer).at(channel).sends, std::move(message), true);
}

std::shared_ptr<Transfer> SocketLinks::receive(int64_t peer, size_t channel, Transfer message) {
  return post(peers_.at(peer).at(channel).receives, std::move(message), false);
}

std::shared_ptr<Transfer> SocketLinks::post(Queue& queue, Transfer message, bool sending) {
  ++outstanding_;
  Framed& framed = queue.emplace_back(Framed{std::make_shared<Transfer>(std::move(message))});
  if (sending) framed.size = framed.transfer->size;
  return framed.transfer;
}

bool SocketLinks::advance() {
  bool moved = false;
  for (auto& [peer, connections] : peers_) {
    for (Connection& connection : connections) {
      if (!connection.sends.empty()) moved |= advance_sends(connection, peer);
      if (!connection.receives.empty()) moved |= advance_receives(connection, peer);
    }
  }
  return moved;
}

bool SocketLinks::advance_sends(Connection& connection, int64_t peer) {
  Pieces pieces(connection.sends);
  const msghdr header = pieces.header();
  const ssize_t sent = sendmsg(connection.socket.number(), &header, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0 && !would_block(errno)) throw LinkError(peer, reason_of(errno));
  if (sent > 0) count_moved(connection.sends, sent, peer);
  return sent > 0;
}

/// Messages have the sizes that are expected, so that frames and contents of several are received at once.
bool SocketLinks::advance_receives(Connection& connection, int64_t peer) {
  Pieces pieces(connection.receives);
  msghdr header = pieces.header();
  const ssize_t received = recvmsg(connection.socket.number(), &header, MSG_DONTWAIT);
  if (received == 0) throw LinkError(peer, "connection closed");
  if (received < 0 && !would_block(errno)) throw LinkError(peer, reason_of(errno));
  if (received > 0) count_moved(connection.receives, received, peer);
  return received > 0;
}

/// Of the first messages of a queue, which leave it when they are complete.
void SocketLinks::count_moved(Queue& queue, int64_t bytes, int64_t peer) {
  while (bytes > 0) {
    Framed& message = queue.front();
    const int64_t all = kFrame + message.transfer->size;
    const int64_t moved = std::min(bytes, all - message.moved);
    message.moved += moved;
    bytes -= moved;
    if (message.moved >= kFrame && message.size != message.transfer->size) {
      throw LinkError(
          peer, concatenate("it sent another message: bytes=", message.size, ", expected=", message.transfer->size));
    }
    if (message.moved < all) return;
    message.transfer->done = true;
    queue.pop_front();
    --outstanding_;
  }
}

void SocketLinks::wait_for_change(std::chrono::microseconds longest) {
  std::vector<pollfd> waiting;
  for (const auto& [peer, connections] : peers_) {
    for (const Connection& connection : connections) {
      int events = connection.sends.empty() ? 0 : POLLOUT;
      if (!connection.receives.empty()) events |= POLLIN;
      if (events != 0) waiting.push_back({connection.socket.number(), static_cast<int16_t>(events), 0});
    }
  }
  const timespec timeout{longest.count() / 1'000'000, (longest.count() % 1'000'000) * 1000};
  ppoll(waiting.data(), waiting.size(), &timeout, nullptr);
}

void SocketLinks::close() {
  for (auto& [peer, connections] : peers_) {
    for (Connection& connection : connections) {
      connection.sends.clear();
      connection.receives.clear();
      shutdown(connection.socket.number(), SHUT_RDWR);
    }
  }
  outstanding_ = 0;
}

int64_t SocketLinks::rounds() const { return kRounds; }

}  // namespace joinsum::runtime::communication::sockets

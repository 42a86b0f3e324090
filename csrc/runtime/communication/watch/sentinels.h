#pragma once

#include <chrono>
#include <map>
#include <string>

#include <torch/csrc/distributed/c10d/Work.hpp>

namespace joinsum::runtime::communication::watch {

/// Longer than any wait: a Gloo wait that times out closes every connection.
constexpr std::chrono::milliseconds kForever = std::chrono::hours(24);

/// The message of a backend's error, without its source lines and addresses.
std::string reason_of(const std::exception& error);

/// For each peer a receive that no send ever matches: it fails when the connection to the peer closes. Gloo itself does
/// not wake a transfer that had begun when its connection closed.
class Sentinels {
 public:
  bool contains(int64_t peer) const { return receives_.contains(peer); }
  void add(int64_t peer, c10::intrusive_ptr<c10d::Work> receive) { receives_[peer] = std::move(receive); }
  /// Why the connection to `peer` has closed; empty while it is open, and for a peer without a sentinel.
  std::string close_reason(int64_t peer) const;
  /// Closes the connections of the group, as a wait that times out does. A Gloo transfer that is destroyed while its
  /// data may still arrive would leave the connection's thread in a busy loop.
  void close_connections();
  void clear() { receives_.clear(); }

 private:
  std::map<int64_t, c10::intrusive_ptr<c10d::Work>> receives_;
};

}  // namespace joinsum::runtime::communication::watch

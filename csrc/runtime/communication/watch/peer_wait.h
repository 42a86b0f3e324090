#pragma once

#include <chrono>
#include <set>
#include <string>
#include <vector>

#include "runtime/communication/watch/peer_watch.h"

namespace joinsum::runtime::communication::watch {

/// One wait for a list of transfers.
class PeerWatch::Wait {
 public:
  Wait(PeerWatch& watch, const std::string& operation, std::vector<PeerTransfer>& transfers)
      : watch_(watch), operation_(operation), transfers_(transfers), last_check_(Clock::now()) {}
  ~Wait() {
    if (watch_.waker_) watch_.waker_->end_waits();
    if (watch_.heartbeat_) watch_.heartbeat_->end_wait();
  }
  void wait_all();

 private:
  using Clock = std::chrono::steady_clock;

  /// Collectives and the transfers of other backends cannot be woken.
  bool interruptible(const PeerTransfer& transfer) const {
    return transfer.peer != kEveryPeer && watch_.waker_ != nullptr;
  }
  bool linked_done();
  void wait_linked();
  bool finished(PeerTransfer& transfer);
  bool wait_a_tick(PeerTransfer& transfer);
  void wait_waking(PeerTransfer& transfer);
  void wait_polling(PeerTransfer& transfer);
  void check_peers_at_tick();
  void check_peers();
  void check_heartbeat(int64_t peer);
  void fail_unless_finished(int64_t peer, const std::string& why, bool closed = false);
  std::set<int64_t> awaited() const;

  PeerWatch& watch_;
  const std::string& operation_;
  std::vector<PeerTransfer>& transfers_;
  Clock::time_point last_check_;
  Millis waited_{0};
};

}  // namespace joinsum::runtime::communication::watch

#include "runtime/communication/watch/peer_wait.h"

#include <algorithm>
#include <atomic>
#include <iomanip>
#include <sstream>
#include <thread>

#include <c10/util/ScopeExit.h>

#include "base/check.h"

namespace joinsum::runtime::communication::watch {
namespace {

/// Between two checks of the peers during a wait.
constexpr Millis kTick{100};
/// How long a site continues to wait after another one has reported a failure in the same call: it may receive what it
/// waits for, and fail in the same manner.
constexpr Millis kReportGrace{3000};
/// Between two wake-ups of a wait for Gloo while messages of links are outstanding.
constexpr Millis kLinksTick{1};
/// How long a wait for several kinds of links waits for one before it looks at the others.
constexpr std::chrono::microseconds kShortestTurn{50};
constexpr std::chrono::microseconds kLongestTurn{2000};
/// Pauses between two polls of a transfer whose wait cannot be woken.
constexpr std::chrono::microseconds kShortestPause{20};
constexpr std::chrono::microseconds kLongestPause{1000};

std::atomic<void (*)()> wait_check{nullptr};

std::string seconds_text(Millis duration) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(1) << std::chrono::duration<double>(duration).count() << " s";
  return out.str();
}

}  // namespace

void set_wait_check(void (*check)()) { wait_check = check; }

void PeerWatch::Wait::wait_all() {
  wait_linked();
  if (watch_.waker_ && !awaited().empty()) watch_.waker_->begin_waits(watch_.outstanding() ? kLinksTick : kTick);
  for (PeerTransfer& transfer : transfers_) interruptible(transfer) ? wait_waking(transfer) : wait_polling(transfer);
}

bool PeerWatch::Wait::linked_done() {
  bool all = true;
  for (PeerTransfer& transfer : transfers_) {
    if (transfer.linked != nullptr) transfer.done = transfer.linked->done;
    all = all && (transfer.linked == nullptr || transfer.done);
  }
  return all;
}

/// Waits for this wait's messages of links, and moves those of all exchanges that are under way.
void PeerWatch::Wait::wait_linked() {
  auto turn = kShortestTurn;
  while (!linked_done()) {
    if (watch_.advance(operation_)) {
      turn = kShortestTurn;
    } else {
      watch_.wait_for_links(kTick, turn);
      turn = std::min(2 * turn, kLongestTurn);
    }
    check_peers_at_tick();
  }
}

/// Waits until the transfer is done or the waker's next tick; raises the backend's error.
bool PeerWatch::Wait::wait_a_tick(PeerTransfer& transfer) {
  watch_.waker_->set_current(transfer.work.get());
  const auto leave = c10::make_scope_exit([&] { watch_.waker_->set_current(nullptr); });
  transfer.done = transfer.work->wait(kForever);
  return transfer.done;
}

void PeerWatch::Wait::wait_waking(PeerTransfer& transfer) {
  while (!transfer.done) {
    try {
      if (wait_a_tick(transfer)) return;
    } catch (const std::exception& e) {
      watch_.fail(operation_, transfer.peer, reason_of(e));
    }
    if (watch_.outstanding()) watch_.advance(operation_);
    check_peers_at_tick();
  }
}

void PeerWatch::Wait::wait_polling(PeerTransfer& transfer) {
  auto pause = kShortestPause;
  while (!transfer.work->isCompleted()) {
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, kLongestPause);
    if (watch_.outstanding()) watch_.advance(operation_);
    check_peers_at_tick();
  }
  try {
    transfer.work->wait();
  } catch (const std::exception& e) {
    for (const int64_t peer : awaited()) {
      if (const std::string why = watch_.sentinels_.close_reason(peer); !why.empty())
        watch_.fail(operation_, peer, why);
    }
    watch_.fail(operation_, transfer.peer, reason_of(e));
  }
  transfer.done = true;
}

void PeerWatch::Wait::check_peers_at_tick() {
  // A waker's tick may be a little shorter.
  if (Clock::now() - last_check_ >= kTick * 9 / 10) check_peers();
}

void PeerWatch::Wait::check_peers() {
  const auto now = Clock::now();
  const auto elapsed = std::min(std::chrono::duration_cast<Millis>(now - last_check_), 2 * kTick);
  last_check_ = now;
  waited_ += elapsed;
  if (watch_.closing_) throw TransportError(operation_ + ": the transport is closed");
  if (auto* check = wait_check.load()) check();
  for (const int64_t peer : awaited()) {
    if (const std::string why = watch_.sentinels_.close_reason(peer); !why.empty())
      fail_unless_finished(peer, why, true);
  }
  if (watch_.heartbeat_ == nullptr) return;
  watch_.heartbeat_->advance(elapsed);
  if (const auto reason = watch_.heartbeat_->failure()) watch_.raise(*reason);
  const Millis grace = std::min(kReportGrace, watch_.timeout_);
  if (const auto report = watch_.heartbeat_->reported(grace))
    watch_.raise(watch_.heartbeat_->publish(operation_ + ": " + *report));
  for (const int64_t peer : awaited()) check_heartbeat(peer);
}

void PeerWatch::Wait::check_heartbeat(int64_t peer) {
  const Heartbeat& heartbeat = *watch_.heartbeat_;
  const Millis silence = heartbeat.silence(peer);
  if (silence >= watch_.timeout_) {
    const bool store = heartbeat.store_silence() >= watch_.timeout_;
    fail_unless_finished(peer, "silent for " + seconds_text(silence) + (store ? ", and so is the store" : ""));
  } else if (waited_ >= watch_.timeout_ && heartbeat.ahead(peer) >= watch_.timeout_) {
    fail_unless_finished(peer, "it is in a later call");
  }
}

/// Transfers may have finished before their peer closed its connection, as at the end of its program; fails at one that
/// has not, as it never will. Where only Gloo's connection has been `closed`, what a peer has sent may still be on its
/// way through a link that tells of its end itself.
void PeerWatch::Wait::fail_unless_finished(int64_t peer, const std::string& why, bool closed) {
  for (PeerTransfer& transfer : transfers_) {
    if (transfer.done || (transfer.peer != peer && transfer.peer != kEveryPeer)) continue;
    if (closed && transfer.tells_of_end) continue;
    if (!finished(transfer)) watch_.fail(operation_, peer, why);
  }
}

bool PeerWatch::Wait::finished(PeerTransfer& transfer) {
  if (transfer.linked != nullptr) {
    while (!transfer.linked->done && watch_.advance(operation_)) continue;
    return transfer.linked->done;
  }
  try {
    if (!interruptible(transfer)) return transfer.work->isCompleted();
    // Twice, as a late tick ends the first wait even of a finished transfer.
    watch_.waker_->begin_waits(kTick);
    return wait_a_tick(transfer) || wait_a_tick(transfer);
  } catch (const std::exception&) {
    return false;
  }
}

std::set<int64_t> PeerWatch::Wait::awaited() const {
  std::set<int64_t> peers;
  for (const PeerTransfer& transfer : transfers_) {
    if (transfer.done) continue;
    if (transfer.peer != kEveryPeer) peers.insert(transfer.peer);
    for (int64_t peer = 0; transfer.peer == kEveryPeer && peer < watch_.sites(); ++peer) {
      if (peer != watch_.site()) peers.insert(peer);
    }
  }
  return peers;
}

}  // namespace joinsum::runtime::communication::watch

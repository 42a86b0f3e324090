#include "runtime/communication/watch/heartbeat.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

namespace joinsum::runtime::communication::watch {
namespace {

using Clock = std::chrono::steady_clock;

constexpr Millis kShortestPeriod{20};
constexpr Millis kLongestPeriod{5000};
/// Between two reads of what other sites have published, while this process waits.
constexpr Millis kFailurePoll{250};
/// How long a store that no longer answers may delay the end of the thread, or the failure of this site. The latter may
/// take longer, so that the reason reaches the other sites of a busy machine.
constexpr Millis kEndGrace{1000};
constexpr Millis kPublishGrace{3000};

const char kFailureKey[] = "failure";

/// A site's counter has its heartbeats in the low bits and its calls above them.
constexpr int kCallShift = 32;

std::string beat_key(int64_t site) { return "beat/" + std::to_string(site); }
std::string report_key(int64_t call) { return "report/" + std::to_string(call); }

}  // namespace

struct Heartbeat::State {
  struct Peer {
    int64_t counter = 0;
    Millis seen_at{0};
    int64_t ahead_of = -1;  ///< this site's call during which the peer was first seen in a later one
    Millis ahead_at{0};
  };

  c10::intrusive_ptr<c10d::Store> store;
  int64_t site = 0;
  Millis period{0};

  mutable std::mutex mutex;
  std::condition_variable changed;
  std::vector<Peer> peers;
  Millis waited{0};
  Millis round_at{0};
  int64_t calls = 0;
  bool waiting = false;
  bool stopping = false;
  bool finished = false;
  bool store_lost = false;
  std::string to_publish;
  std::optional<std::string> failure;
  std::string own_report;       ///< why this site has failed in a call, until the others can read it
  int64_t own_report_call = 0;  ///< that call
  std::string report;           ///< of some site
  int64_t report_call = 0;      ///< that call
  Millis report_seen_at{0};     ///< when this was seen

  int64_t published_calls = 0;  ///< used by the thread alone

  void run();
  void exchange_failure();
  void exchange_reports();
  void beat();
  void observe();
};

void Heartbeat::State::run() {
  std::unique_lock lock(mutex);
  auto next_beat = Clock::now();
  while (!stopping && !store_lost) {
    const bool observing = waiting;
    lock.unlock();
    bool lost = false;
    try {
      exchange_failure();
      exchange_reports();
      if (Clock::now() >= next_beat) {
        beat();
        if (observing) observe();
        next_beat = Clock::now() + period;
      }
    } catch (const std::exception&) {
      lost = true;
    }
    lock.lock();
    store_lost = lost;
    const Millis pause = observing ? std::min(period, kFailurePoll) : period;
    changed.wait_for(lock, pause,
                     [&] { return stopping || !to_publish.empty() || !own_report.empty() || (waiting && !observing); });
  }
  finished = true;
  changed.notify_all();
}

void Heartbeat::State::exchange_failure() {
  std::string own;
  {
    std::lock_guard lock(mutex);
    own = std::exchange(to_publish, {});
    if (failure) return;
  }
  std::string current;
  if (!own.empty()) {
    current = store->compareSet(kFailureKey, "", own);
  } else if (store->check({kFailureKey})) {
    current = store->get_to_str(kFailureKey);
  }
  if (current.empty()) return;
  std::lock_guard lock(mutex);
  failure = current;
  changed.notify_all();
}

void Heartbeat::State::exchange_reports() {
  std::string own;
  int64_t call = 0;
  bool reading = false;
  {
    std::lock_guard lock(mutex);
    own = std::exchange(own_report, {});
    reading = own.empty() && waiting && report_call != calls;
    call = own.empty() ? calls : own_report_call;
  }
  const std::string key = report_key(call);
  if (!own.empty()) store->compareSet(key, "", own);
  if (!reading || !store->check({key})) return;
  const std::string reason = store->get_to_str(key);
  std::lock_guard lock(mutex);
  report = reason;
  report_call = call;
  report_seen_at = waited;
}

void Heartbeat::State::beat() {
  int64_t new_calls = 0;
  {
    std::lock_guard lock(mutex);
    new_calls = calls - published_calls;
  }
  store->add(beat_key(site), 1 + (new_calls << kCallShift));
  published_calls += new_calls;
}

void Heartbeat::State::observe() {
  for (int64_t number = 0; number < static_cast<int64_t>(peers.size()); ++number) {
    if (number == site) continue;
    // Adding nothing reads without blocking on a key that does not exist yet.
    const int64_t counter = store->add(beat_key(number), 0);
    std::lock_guard lock(mutex);
    Peer& peer = peers[number];
    if (counter != peer.counter) peer.seen_at = waited;
    peer.counter = counter;
    if ((counter >> kCallShift) > calls && peer.ahead_of != calls) {
      peer.ahead_of = calls;
      peer.ahead_at = waited;
    }
  }
  std::lock_guard lock(mutex);
  round_at = waited;
}

Heartbeat::Heartbeat(c10::intrusive_ptr<c10d::Store> store, int64_t site, int64_t sites, Millis timeout)
    : state_(std::make_shared<State>()) {
  state_->store = std::move(store);
  state_->site = site;
  state_->period = std::clamp(timeout / 5, kShortestPeriod, kLongestPeriod);
  state_->peers.resize(sites);
  thread_ = std::thread([state = state_] { state->run(); });
}

Heartbeat::~Heartbeat() {
  std::unique_lock lock(state_->mutex);
  state_->stopping = true;
  state_->changed.notify_all();
  const bool finished = state_->changed.wait_for(lock, kEndGrace, [&] { return state_->finished; });
  lock.unlock();
  if (finished) {
    thread_.join();
  } else {
    // It blocks in a store that no longer answers; c10d offers no way to cancel that.
    thread_.detach();
  }
}

void Heartbeat::advance(Millis waited) {
  std::lock_guard lock(state_->mutex);
  state_->waited += waited;
  if (std::exchange(state_->waiting, true)) return;
  state_->changed.notify_all();
}

void Heartbeat::end_wait() {
  std::lock_guard lock(state_->mutex);
  state_->waiting = false;
}

void Heartbeat::begin_call() {
  std::lock_guard lock(state_->mutex);
  ++state_->calls;
}

void Heartbeat::report(const std::string& reason) {
  std::lock_guard lock(state_->mutex);
  state_->own_report = reason;
  state_->own_report_call = state_->calls;
  state_->changed.notify_all();
}

std::optional<std::string> Heartbeat::reported(Millis grace) const {
  std::lock_guard lock(state_->mutex);
  if (state_->report_call != state_->calls || state_->calls == 0) return std::nullopt;
  return state_->waited - state_->report_seen_at >= grace ? std::optional(state_->report) : std::nullopt;
}

Millis Heartbeat::silence(int64_t peer) const {
  std::lock_guard lock(state_->mutex);
  if (state_->store_lost) return Millis{0};
  const State::Peer& entry = state_->peers.at(peer);
  // While the store does not answer, every site is silent.
  const Millis seen_at = entry.counter > 0 ? std::min(entry.seen_at, state_->round_at) : state_->round_at;
  return state_->waited - seen_at;
}

Millis Heartbeat::ahead(int64_t peer) const {
  std::lock_guard lock(state_->mutex);
  const State::Peer& entry = state_->peers.at(peer);
  return entry.ahead_of == state_->calls ? state_->waited - entry.ahead_at : Millis{0};
}

Millis Heartbeat::store_silence() const {
  std::lock_guard lock(state_->mutex);
  return state_->store_lost ? Millis{0} : state_->waited - state_->round_at;
}

std::optional<std::string> Heartbeat::failure() const {
  std::lock_guard lock(state_->mutex);
  return state_->failure;
}

std::string Heartbeat::publish(const std::string& reason) {
  std::unique_lock lock(state_->mutex);
  state_->to_publish = reason;
  state_->changed.notify_all();
  state_->changed.wait_for(lock, kPublishGrace, [&] { return state_->failure || state_->finished; });
  return state_->failure.value_or(reason);
}

}  // namespace joinsum::runtime::communication::watch

#include "runtime/peer_watch.h"

#include <algorithm>
#include <condition_variable>
#include <iomanip>
#include <set>
#include <sstream>
#include <thread>
#include <unistd.h>
#include <utility>

#include <c10/util/ScopeExit.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "base/check.h"
#include "runtime/transport.h"

namespace joinsum::runtime {
namespace {

using Clock = std::chrono::steady_clock;
using Work = c10d::Work;

/// Between two looks at the peers while a wait lasts.
constexpr Millis kTick{100};
/// How long a site waits on after another one has failed in the same call: it may get what it waits for, and fail
/// alike.
constexpr Millis kLeftGrace{3000};
/// Longer than any wait: a Gloo wait that times out closes every connection.
constexpr Millis kForever = std::chrono::hours(24);
/// Pauses between two looks at an operation that cannot be waited for with interruptions.
constexpr std::chrono::microseconds kShortestPause{20};
constexpr std::chrono::microseconds kLongestPause{1000};

/// A Gloo group with n network interfaces takes one by tag mod n; multiples of 1 to 16 keep all tags on one connection.
constexpr int kTagStep = 720720;
constexpr int kFirstTag = 0x4a53;
constexpr int kSentinelTag = kFirstTag + 2 * kTagStep;
int tag_of(Channel channel) { return kFirstTag + static_cast<int>(channel) * kTagStep; }

std::atomic<void (*)()> wait_check{nullptr};

std::string seconds_text(Millis duration) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(1) << std::chrono::duration<double>(duration).count() << " s";
  return out.str();
}

/// A connection of joinsum's own to the group's store, or nothing. All sites make the transports of a group in one
/// order, so their count tells this one's keys from those of earlier ones.
c10::intrusive_ptr<c10d::Store> open_store(const c10d::ProcessGroup& group) {
  const auto shared = group.getStore();
  if (!shared) return {};
  const auto store = c10::make_intrusive<c10d::PrefixStore>("joinsum", shared->clone());
  const int64_t generation = store->add("generation/" + std::to_string(group.getRank()), 1);
  return c10::make_intrusive<c10d::PrefixStore>(std::to_string(generation), store);
}

}  // namespace

void set_wait_check(void (*check)()) { wait_check = check; }

std::string reason_of(const std::exception& error) {
  const std::string text = error.what();
  for (const char* sign : {"onnection closed", "ocket closed", "onnection reset", "roken pipe", "onnection refused"}) {
    if (text.find(sign) != std::string::npos) return "connection closed";
  }
  return text.substr(0, text.find('\n'));
}

/// Wakes a blocked Gloo wait every kTick: Work::abort makes it return false and leaves the operation posted.
class PeerWatch::Ticker {
 public:
  Ticker() : thread_([this] { run(); }) {}
  ~Ticker() {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
      changed_.notify_all();
    }
    thread_.join();
  }
  void set_current(Work* work) {
    std::lock_guard lock(mutex_);
    current_ = work;
  }
  void set_active(bool active) {
    std::lock_guard lock(mutex_);
    active_ = active;
    if (active) changed_.notify_all();
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      changed_.wait(lock, [&] { return active_ || stopping_; });
      changed_.wait_for(lock, kTick, [&] { return stopping_; });
      if (current_ != nullptr) current_->abort();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  Work* current_ = nullptr;
  bool active_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

/// One wait for a list of operations.
class PeerWatch::Waiting {
 public:
  Waiting(PeerWatch& watch, const std::string& who, std::vector<Pending>& pending)
      : watch_(watch), who_(who), pending_(pending), last_look_(Clock::now()) {
    if (watch_.ticker_) watch_.ticker_->set_active(true);
  }
  ~Waiting() {
    if (watch_.ticker_) watch_.ticker_->set_active(false);
    if (watch_.heartbeat_) watch_.heartbeat_->end_wait();
  }
  void wait_all() {
    for (Pending& entry : pending_) interruptible(entry) ? wait_waking(entry) : wait_polling(entry);
  }

 private:
  /// Collectives and other backends' operations cannot be woken.
  bool interruptible(const Pending& entry) const { return entry.peer != kEveryPeer && watch_.ticker_ != nullptr; }
  bool wait_a_tick(Pending& entry);
  void wait_waking(Pending& entry);
  void wait_polling(Pending& entry);
  void look();
  std::string closed(int64_t peer) const;
  void look_at_beat(int64_t peer);
  void settle(int64_t peer, const std::string& why);
  std::set<int64_t> awaited() const;

  PeerWatch& watch_;
  const std::string& who_;
  std::vector<Pending>& pending_;
  Clock::time_point last_look_;
  Millis waited_{0};
};

/// Waits until the operation is done or the ticker's next tick; raises the backend's error.
bool PeerWatch::Waiting::wait_a_tick(Pending& entry) {
  watch_.ticker_->set_current(entry.work.get());
  const auto leave = c10::make_scope_exit([&] { watch_.ticker_->set_current(nullptr); });
  entry.done = entry.work->wait(kForever);
  return entry.done;
}

void PeerWatch::Waiting::wait_waking(Pending& entry) {
  while (!entry.done) {
    try {
      if (wait_a_tick(entry)) return;
    } catch (const std::exception& e) {
      watch_.fail(who_, entry.peer, reason_of(e));
    }
    look();
  }
}

void PeerWatch::Waiting::wait_polling(Pending& entry) {
  auto pause = kShortestPause;
  while (!entry.work->isCompleted()) {
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, kLongestPause);
    if (Clock::now() - last_look_ >= kTick) look();
  }
  try {
    entry.work->wait();
  } catch (const std::exception& e) {
    for (const int64_t peer : awaited()) {
      if (const std::string why = closed(peer); !why.empty()) watch_.fail(who_, peer, why);
    }
    watch_.fail(who_, entry.peer, reason_of(e));
  }
  entry.done = true;
}

void PeerWatch::Waiting::look() {
  const auto now = Clock::now();
  const auto elapsed = std::min(std::chrono::duration_cast<Millis>(now - last_look_), 2 * kTick);
  last_look_ = now;
  waited_ += elapsed;
  if (watch_.closing_) throw TransportError(who_ + ": the transport is closed");
  if (auto* check = wait_check.load()) check();
  for (const int64_t peer : awaited()) {
    if (const std::string why = closed(peer); !why.empty()) settle(peer, why);
  }
  if (watch_.heartbeat_ == nullptr) return;
  watch_.heartbeat_->advance(elapsed);
  if (const auto reason = watch_.heartbeat_->failure()) watch_.raise(*reason);
  const Millis grace = std::min(kLeftGrace, watch_.timeout_);
  if (const auto left = watch_.heartbeat_->left(grace)) watch_.raise(watch_.heartbeat_->publish(who_ + ": " + *left));
  for (const int64_t peer : awaited()) look_at_beat(peer);
}

/// Why the connection to `peer` has closed; nothing while it is open.
std::string PeerWatch::Waiting::closed(int64_t peer) const {
  const auto sentinel = watch_.sentinels_.find(peer);
  if (sentinel == watch_.sentinels_.end()) return {};
  try {
    // After an abort, the wait returns at once or raises if the connection has closed. Gloo itself does not wake a
    // transfer that was under way when its connection closed.
    sentinel->second->abort();
    sentinel->second->wait(kForever);
  } catch (const std::exception& e) {
    return reason_of(e);
  }
  return {};
}

void PeerWatch::Waiting::look_at_beat(int64_t peer) {
  const Heartbeat& heartbeat = *watch_.heartbeat_;
  const Millis silence = heartbeat.silence(peer);
  if (silence >= watch_.timeout_) {
    const bool store = heartbeat.store_silence() >= watch_.timeout_;
    settle(peer, "silent for " + seconds_text(silence) + (store ? ", and so is the store" : ""));
  } else if (waited_ >= watch_.timeout_ && heartbeat.ahead(peer) >= watch_.timeout_) {
    settle(peer, "it left this call for another one");
  }
}

/// Tells operations that finished before their peer went away (it may have left in good order) from those that never
/// will, and fails at one of these.
void PeerWatch::Waiting::settle(int64_t peer, const std::string& why) {
  for (Pending& entry : pending_) {
    if (entry.done || (entry.peer != peer && entry.peer != kEveryPeer)) continue;
    bool finished = false;
    try {
      // Twice, as a tick that came late ends the first wait of a finished operation.
      finished = interruptible(entry) ? wait_a_tick(entry) || wait_a_tick(entry) : entry.work->isCompleted();
    } catch (const std::exception&) {
      finished = false;
    }
    if (!finished) watch_.fail(who_, peer, why);
  }
}

std::set<int64_t> PeerWatch::Waiting::awaited() const {
  std::set<int64_t> peers;
  for (const Pending& entry : pending_) {
    if (entry.done) continue;
    if (entry.peer != kEveryPeer) peers.insert(entry.peer);
    for (int64_t peer = 0; entry.peer == kEveryPeer && peer < watch_.sites(); ++peer) {
      if (peer != watch_.site()) peers.insert(peer);
    }
  }
  return peers;
}

PeerWatch::PeerWatch(c10::intrusive_ptr<c10d::ProcessGroup> group, Millis timeout)
    : group_(std::move(group)),
      timeout_(timeout),
      process_(getpid()),
      site_(group_->getRank()),
      sites_(group_->getSize()) {
  for (const at::Device& device : group_->getDeviceTypes()) {
    const auto backend = group_->getBackend(device.type());
    const std::string name = backend->getBackendName();
    // Gloo sends what lies in the memory of the CPU; arrays of other devices are copied there.
    if (name == "gloo" && !device.is_cpu()) continue;
    lanes_[device.type()] = {name, backend, device, name == "gloo"};
  }
  JOINSUM_USER_CHECK(!lanes_.empty(), "init: process group has no backend: group=", group_->getGroupName());
  if (control_lane().interruptible) ticker_ = std::make_unique<Ticker>();
  if (auto store = open_store(*group_)) heartbeat_ = std::make_unique<Heartbeat>(store, site(), sites(), timeout);
}

PeerWatch::~PeerWatch() { close(); }

const Lane& PeerWatch::control_lane() {
  const auto cpu = lanes_.find(at::kCPU);
  return cpu != lanes_.end() ? cpu->second : lanes_.begin()->second;
}

const Lane& PeerWatch::lane(const std::string& who, c10::DeviceType type) {
  const auto own = lanes_.find(type);
  if (own != lanes_.end()) return own->second;
  const Lane& other = control_lane();
  JOINSUM_USER_CHECK(other.device.is_cpu(), who, ": process group cannot move these arrays; initialise it with ",
                     "backend=\"cpu:gloo,cuda:nccl\": device=", c10::DeviceTypeName(type, true),
                     ", backend=", other.name);
  return other;
}

bool PeerWatch::forked() const { return getpid() != process_; }

std::unique_lock<std::mutex> PeerWatch::enter() {
  if (forked()) throw TransportError("transport: the process group belongs to the parent of this forked process");
  std::unique_lock lock(mutex_);
  if (!failure_.empty()) throw TransportError(failure_);
  if (group_ == nullptr) throw TransportError("transport: closed; call joinsum.init again");
  return lock;
}

void PeerWatch::begin_common_call() {
  if (heartbeat_) heartbeat_->begin_call();
}

void PeerWatch::leave_common_call(const std::string& reason) {
  if (heartbeat_ && !forked()) heartbeat_->leave(concatenate("lost site ", site_, ": it failed: ", reason));
}

std::vector<Pending> PeerWatch::post(const std::string& who, const Lane& lane, Channel channel,
                                     const std::vector<Parcel>& receives, const std::vector<Parcel>& sends) {
  std::vector<Pending> pending;
  if (receives.empty() && sends.empty()) return pending;
  int64_t peer = kEveryPeer;
  try {
    // NCCL's sends and receives deadlock unless they form one group call.
    const bool coalesced = !lane.device.is_cpu();
    if (coalesced) lane.backend->startCoalescing();
    for (const auto* parcels : {&receives, &sends}) {
      for (const Parcel& parcel : *parcels) {
        peer = parcel.peer;
        auto work = post_one(lane, parcel, parcels == &sends, tag_of(channel));
        if (!coalesced) pending.push_back({peer, std::move(work)});
      }
    }
    peer = kEveryPeer;
    if (coalesced) pending.push_back({peer, lane.backend->endCoalescing()});
  } catch (const std::exception& e) {
    fail(who, peer, reason_of(e));
  }
  return pending;
}

c10::intrusive_ptr<Work> PeerWatch::post_one(const Lane& lane, const Parcel& parcel, bool sending, int tag) {
  const int peer = static_cast<int>(parcel.peer);
  if (lane.interruptible && !sentinels_.contains(peer)) {
    std::vector<at::Tensor> unused{at::empty({1}, at::kByte)};
    sentinels_[peer] = lane.backend->recv(unused, peer, kSentinelTag);
  }
  std::vector<at::Tensor> bytes{parcel.array.view(at::kByte)};
  return sending ? lane.backend->send(bytes, peer, tag) : lane.backend->recv(bytes, peer, tag);
}

void PeerWatch::wait(const std::string& who, std::vector<Pending>& pending) {
  try {
    Waiting(*this, who, pending).wait_all();
  } catch (...) {
    interrupt(who);
    throw;
  }
}

void PeerWatch::interrupt(const std::string& who) {
  if (group_ == nullptr || !failure_.empty()) return;
  failure_ = concatenate(who, ": lost site ", site_, ": interrupted");
  if (heartbeat_) heartbeat_->publish(failure_);
  close_connections();
}

void PeerWatch::abandon(const std::string& who) noexcept {
  std::lock_guard lock(mutex_);
  interrupt(who);
}

void PeerWatch::fail(const std::string& who, int64_t peer, const std::string& why) {
  const std::string lost = peer == kEveryPeer ? ": failed: " : concatenate(": lost site ", peer, ": ");
  const std::string reason = who + lost + why;
  raise(heartbeat_ ? heartbeat_->publish(reason) : reason);
}

/// Comes after publishing: sites that see these connections close find the reason in the store.
void PeerWatch::raise(const std::string& reason) {
  failure_ = reason;
  close_connections();
  throw TransportError(reason);
}

/// A Gloo operation that is destroyed while its data may still come leaves the connection's thread spinning; a wait
/// that times out closes every connection of the group.
void PeerWatch::close_connections() {
  for (auto& [peer, work] : sentinels_) {
    try {
      // The first wait may only use up an abort.
      if (!work->wait(Millis{1})) work->wait(Millis{1});
    } catch (const std::exception&) {
      continue;
    }
  }
  for (auto& [type, lane] : lanes_) {
    if (lane.interruptible) continue;
    try {
      lane.backend->abort();
    } catch (const std::exception&) {
      continue;
    }
  }
}

void PeerWatch::close() noexcept {
  if (forked()) {
    static_cast<void>(heartbeat_.release());
    static_cast<void>(ticker_.release());
    static_cast<void>(group_.release());
    // Destroying them would touch connections.
    static_cast<void>(new auto(std::move(sentinels_)));
    static_cast<void>(new auto(std::move(lanes_)));
    return;
  }
  closing_ = true;
  std::lock_guard lock(mutex_);
  heartbeat_.reset();
  ticker_.reset();
  sentinels_.clear();
  lanes_.clear();
  group_.reset();
}

}  // namespace joinsum::runtime

#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "runtime/heartbeat.h"

namespace joinsum::runtime {

/// Stands for all peers: any of them may be the one that a collective waits for.
constexpr int64_t kEveryPeer = -1;

/// An operation under way with a peer.
struct Pending {
  int64_t peer = kEveryPeer;
  c10::intrusive_ptr<c10d::Work> work;
  bool done = false;
};

/// One contiguous array on its way to or from a peer.
struct Parcel {
  int64_t peer = 0;
  at::Tensor array;
};

/// Arrays and what accompanies a call (headers, texts) are matched apart, so that a site that left a call is a site to
/// wait for, not one that sends arrays of the wrong size: Gloo ends a process that gets more than it expects.
enum class Channel { kArrays, kControl };

/// What a backend's error says, without its source lines and addresses.
std::string reason_of(const std::exception& error);

/// How arrays of one device type travel.
struct Lane {
  std::string name;  ///< of the backend
  c10::intrusive_ptr<c10d::Backend> backend;
  at::Device device = at::kCPU;  ///< where arrays must lie
  bool interruptible = false;    ///< Gloo's send and receive: a blocked wait can be woken and resumed
};

/// The peers of a process group: sends, receives and waits, and never waits for a peer that is gone.
///
/// A killed peer shows by its closed connection, a stopped or unreachable one by its missing heartbeat, a peer that
/// lost another one by the reason that it left in the store. Any of these fails the group: all its connections are
/// closed, so that nobody waits for this site, and every later call raises the same TransportError.
class PeerWatch {
 public:
  PeerWatch(c10::intrusive_ptr<c10d::ProcessGroup> group, Millis timeout);
  ~PeerWatch();
  PeerWatch(const PeerWatch&) = delete;
  PeerWatch& operator=(const PeerWatch&) = delete;

  int64_t site() const { return site_; }
  int64_t sites() const { return sites_; }
  /// How arrays of that type travel; raises PlanError if the group has no way.
  const Lane& lane(const std::string& who, c10::DeviceType type);
  /// How texts and tags travel: over the CPU where the group can.
  const Lane& control_lane();

  /// Begins a call; the calls of several threads take turns. Raises if the group has failed or is closed.
  std::unique_lock<std::mutex> enter();
  /// Counts a call that all sites make in one order, so that a site waiting for one that has left the call learns it.
  void begin_common_call();
  /// Tells the others that this site has failed in the common call under way: sites that wait there fail, too. Where
  /// all fail alike, nobody waits, and the group goes on.
  void leave_common_call(const std::string& reason);
  /// Starts the receives, then the sends. Those between two sites on one channel match in order. `who` names the
  /// operator in errors.
  std::vector<Pending> post(const std::string& who, const Lane& lane, Channel channel,
                            const std::vector<Parcel>& receives, const std::vector<Parcel>& sends);
  void wait(const std::string& who, std::vector<Pending>& pending);
  /// Gives the group up, for operations whose memory is about to go: the others must not wait for this site.
  void abandon(const std::string& who) noexcept;
  [[noreturn]] void fail(const std::string& who, int64_t peer, const std::string& why);
  /// Ends the threads and lets go of the group; a call under way in another thread raises. Does nothing in a forked
  /// child: the threads and the connections belong to the parent.
  void close() noexcept;
  bool forked() const;

 private:
  class Ticker;
  class Waiting;
  void post_sentinel(const Lane& lane, int64_t peer);
  c10::intrusive_ptr<c10d::Work> post_one(const Lane& lane, const Parcel& parcel, bool sending, int tag);
  [[noreturn]] void raise(const std::string& reason);
  void interrupt(const std::string& who);
  void close_connections();

  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  Millis timeout_;
  int64_t process_;
  int64_t site_;
  int64_t sites_;
  std::mutex mutex_;
  std::atomic<bool> closing_ = false;
  std::string failure_;
  std::map<c10::DeviceType, Lane> lanes_;
  std::unique_ptr<Heartbeat> heartbeat_;
  std::unique_ptr<Ticker> ticker_;
  /// Receives that nobody ever matches: they fail when their connection closes.
  std::map<int64_t, c10::intrusive_ptr<c10d::Work>> sentinels_;
};

}  // namespace joinsum::runtime

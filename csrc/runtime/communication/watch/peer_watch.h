#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "runtime/communication/links/links.h"
#include "runtime/communication/watch/heartbeat.h"
#include "runtime/communication/watch/sentinels.h"
#include "runtime/communication/watch/waker.h"

namespace joinsum::runtime::communication::watch {

using links::LinkError;
using links::Links;
using links::Transfer;

/// In place of a peer, for a collective: any peer may be the one that it waits for.
constexpr int64_t kEveryPeer = -1;

/// A send, receive or collective that has been posted: a backend's work, or a message of a link.
struct PeerTransfer {
  int64_t peer = kEveryPeer;
  c10::intrusive_ptr<c10d::Work> work;
  bool done = false;
  std::shared_ptr<const Transfer> linked = nullptr;
  bool tells_of_end = false;  ///< its link raises when the peer has ended
};

/// One contiguous array to send to a peer, or to receive into.
struct PeerBuffer {
  int64_t peer = 0;
  at::Tensor buffer;
};

/// Arrays and control data (headers, texts) have tags of their own, so that the header of another call is never taken
/// for an array: Gloo ends a process that receives more than it expects. Links have a ring or a socket for each.
enum class Channel { kArrays, kControl };

/// The backend that moves arrays of one device type.
struct DeviceBackend {
  std::string name;
  c10::intrusive_ptr<c10d::Backend> backend;
  at::Device device = at::kCPU;  ///< where arrays must be
  bool interruptible = false;    ///< as on Gloo: a blocked wait for a send or receive can be woken and resumed
};

/// Sends to, receives from and waits for the peers of a process group, and never waits for a peer that is lost. Arrays
/// of the CPU and control data go through links to the peers that have some, else through the group's backends.
///
/// A killed peer is recognised by its closed connection, a stopped or unreachable one by its missing heartbeat, and a
/// peer that lost another one by the reason that it published in the store. Any of these fails the group: all its
/// connections are closed, so that nobody waits for this site, and every later call raises the same TransportError.
class PeerWatch {
 public:
  PeerWatch(c10::intrusive_ptr<c10d::ProcessGroup> group, Millis timeout);
  ~PeerWatch();
  PeerWatch(const PeerWatch&) = delete;
  PeerWatch& operator=(const PeerWatch&) = delete;

  int64_t site() const { return site_; }
  int64_t sites() const { return sites_; }
  /// The backend for arrays of that device type; raises PlanError if the group cannot move them.
  const DeviceBackend& backend(const std::string& operation, c10::DeviceType type);
  /// The backend for control data: the one for the CPU, if there is one.
  const DeviceBackend& control_backend();

  /// Uses these links from now on, which every rank does after the same call.
  void add_links(std::unique_ptr<Links> links);
  /// Locks the group for one call of one thread. Raises if the group has failed or is closed.
  std::unique_lock<std::mutex> enter();
  /// Counts a call that all sites make in one order, so that a site which waits in an earlier call than its peer sees
  /// it.
  void begin_common_call();
  /// Reports to the others that this site has failed in the latest common call: sites that wait there fail, too. Where
  /// all fail alike, nobody waits, and the group stays usable.
  void report_failure(const std::string& reason);
  /// Starts the receives, then the sends. Those between two sites on one channel match in order. `operation`
  /// opens errors.
  std::vector<PeerTransfer> post(const std::string& operation, const DeviceBackend& backend, Channel channel,
                                 const std::vector<PeerBuffer>& receives, const std::vector<PeerBuffer>& sends);
  void wait(const std::string& operation, std::vector<PeerTransfer>& transfers);
  /// Moves what can be moved of the links' messages, without waiting; others move by themselves.
  void progress();
  /// Fails the group, as the memory of posted transfers is about to be freed: the others must not wait for this site.
  void abandon(const std::string& operation) noexcept;
  [[noreturn]] void fail(const std::string& operation, int64_t peer, const std::string& why);
  /// Ends the threads and releases the group; a call in progress in another thread raises. Does nothing in a forked
  /// child: the threads and the connections belong to the parent.
  void close() noexcept;
  bool forked() const;

 private:
  class Wait;
  PeerTransfer post_one(const DeviceBackend& backend, const PeerBuffer& buffer, bool sending, Channel channel);
  Links* links_to(int64_t peer) const;
  bool advance(const std::string& operation);
  void advance_far(const std::string& operation);
  /// Until links have something to move, but no longer than `longest`, or than `turn` for each of several links.
  void wait_for_links(Millis longest, std::chrono::microseconds turn);
  void advance_links_far();
  bool outstanding() const;
  [[noreturn]] void raise(const std::string& reason);
  void interrupt(const std::string& operation);
  void close_connections();

  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  Millis timeout_;
  int64_t process_;
  int64_t site_;
  int64_t sites_;
  std::mutex mutex_;
  std::atomic<bool> closing_ = false;
  std::string failure_;
  std::map<c10::DeviceType, DeviceBackend> backends_;
  std::unique_ptr<Heartbeat> heartbeat_;
  std::unique_ptr<Waker> waker_;
  std::vector<std::unique_ptr<Links>> links_;
  std::optional<LinkError> broken_;  ///< what `progress` has met, for the next wait
  Sentinels sentinels_;
};

/// `check` is called about ten times a second while a wait for other sites lasts. What it raises ends the wait and
/// fails the transport: how Python's Ctrl-C gets through.
void set_wait_check(void (*check)());

}  // namespace joinsum::runtime::communication::watch

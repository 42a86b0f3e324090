#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include <torch/csrc/distributed/c10d/Store.hpp>

namespace joinsum::runtime {

using Millis = std::chrono::milliseconds;

/// Tells slow sites from lost ones. A thread of its own beats this site's counter in the group's store and, while this
/// process waits, reads the other sites'. The first site that loses another leaves the reason there for all.
///
/// Durations count waiting time alone, so that a process that was suspended does not blame the others for its absence.
class Heartbeat {
 public:
  /// `store` must be a connection that nobody else uses: another user's blocking call would stop the beat.
  Heartbeat(c10::intrusive_ptr<c10d::Store> store, int64_t site, int64_t sites, Millis timeout);
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  /// Adds to the time this process has been waiting; a wait begins with the first of these and lasts until `end_wait`.
  void advance(Millis waited);
  void end_wait();
  /// Counts a call that every site makes in the same order.
  void begin_call();
  /// Tells the other sites that this one has failed in the call that it began last, and goes on without it.
  void leave(const std::string& reason);
  /// Why some site has left the call that this one began last, once this one has waited on for `grace` knowing it.
  std::optional<std::string> left(Millis grace) const;
  /// How long `peer` has not been seen beating. A site that has not begun to beat is late, not silent.
  Millis silence(int64_t peer) const;
  /// How long `peer` has been seen in a later call than this site.
  Millis ahead(int64_t peer) const;
  /// How long the store has not answered.
  Millis store_silence() const;
  /// Why some site gave up, once one did.
  std::optional<std::string> failure() const;
  /// Leaves `reason` for all sites unless another site was first; returns the one in force.
  std::string publish(const std::string& reason);

 private:
  struct State;
  // Shared with the thread, which outlives this object where the store has stopped answering.
  std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace joinsum::runtime

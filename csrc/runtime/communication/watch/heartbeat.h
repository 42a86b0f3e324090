#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include <torch/csrc/distributed/c10d/Store.hpp>

namespace joinsum::runtime::communication::watch {

using Millis = std::chrono::milliseconds;

/// Distinguishes slow sites from lost ones. A thread increments this site's counter in the group's store and, while
/// this process waits, reads those of the other sites. The first site that loses another one publishes the reason
/// there.
///
/// Durations count waiting time alone, so that a process that was suspended does not blame the others for its absence.
class Heartbeat {
 public:
  /// `store` must be a connection that nobody else uses: another user's blocking call would stop the heartbeat.
  Heartbeat(c10::intrusive_ptr<c10d::Store> store, int64_t site, int64_t sites, Millis timeout);
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  /// Adds to the time this process has been waiting; a wait begins with the first of these and lasts until `end_wait`.
  void advance(Millis waited);
  void end_wait();
  /// Counts a call that every site makes in the same order.
  void begin_call();
  /// Reports to the other sites that this one has failed in the call that it began last.
  void report(const std::string& reason);
  /// The reason that some site has reported for the call that this one began last, once this one has waited for `grace`
  /// since it read the report.
  std::optional<std::string> reported(Millis grace) const;
  /// How long the counter of `peer` has not changed. A site that has not begun to count is late, not silent.
  Millis silence(int64_t peer) const;
  /// How long `peer` has been seen in a later call than this site.
  Millis ahead(int64_t peer) const;
  /// How long the store has not answered.
  Millis store_silence() const;
  /// The reason that a site has published, if any has.
  std::optional<std::string> failure() const;
  /// Publishes `reason` to all sites unless another site was first; returns the one published.
  std::string publish(const std::string& reason);

 private:
  struct State;
  // Shared with the thread, which outlives this object where the store has stopped answering.
  std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace joinsum::runtime::communication::watch

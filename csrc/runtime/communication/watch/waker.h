#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include <torch/csrc/distributed/c10d/Work.hpp>

namespace joinsum::runtime::communication::watch {

/// Wakes a blocked Gloo wait at every tick: Work::abort makes it return false, and the transfer stays posted.
class Waker {
 public:
  Waker() : thread_([this] { run(); }) {}
  ~Waker();
  Waker(const Waker&) = delete;
  Waker& operator=(const Waker&) = delete;
  /// The transfer that is waited for now; none where it is null.
  void set_current(c10d::Work* work);
  /// Waits are in progress, which are woken every `tick`.
  void begin_waits(std::chrono::milliseconds tick);
  /// No more; the thread sleeps.
  void end_waits();

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  c10d::Work* current_ = nullptr;
  std::optional<std::chrono::milliseconds> tick_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace joinsum::runtime::communication::watch

#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include <torch/csrc/distributed/c10d/Work.hpp>

namespace joinsum::runtime::communication::watch {

/// Wakes a blocked Gloo wait every `tick`: Work::abort makes it return false, and the transfer stays posted.
class Waker {
 public:
  explicit Waker(std::chrono::milliseconds tick) : tick_(tick), thread_([this] { run(); }) {}
  ~Waker();
  Waker(const Waker&) = delete;
  Waker& operator=(const Waker&) = delete;
  /// The transfer that is waited for now; none where it is null.
  void set_current(c10d::Work* work);
  /// Whether waits are in progress; otherwise the thread sleeps.
  void set_active(bool active);

 private:
  void run();

  const std::chrono::milliseconds tick_;
  std::mutex mutex_;
  std::condition_variable changed_;
  c10d::Work* current_ = nullptr;
  bool active_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace joinsum::runtime::communication::watch

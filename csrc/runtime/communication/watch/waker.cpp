#include "runtime/communication/watch/waker.h"

namespace joinsum::runtime::communication::watch {

Waker::~Waker() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void Waker::set_current(c10d::Work* work) {
  std::lock_guard lock(mutex_);
  current_ = work;
}

void Waker::begin_waits(std::chrono::milliseconds tick) {
  std::lock_guard lock(mutex_);
  tick_ = tick;
  changed_.notify_all();
}

void Waker::end_waits() {
  std::lock_guard lock(mutex_);
  tick_.reset();
}

void Waker::run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    changed_.wait(lock, [&] { return tick_ || stopping_; });
    if (tick_) changed_.wait_for(lock, *tick_, [&] { return stopping_; });
    if (current_ != nullptr) current_->abort();
  }
}

}  // namespace joinsum::runtime::communication::watch

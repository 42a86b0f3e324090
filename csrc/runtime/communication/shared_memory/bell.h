#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>

namespace joinsum::runtime::communication::shared_memory {

/// A doorbell: wakes one process, its owner. It is stored in memory that other processes map; zeros are a bell.
class Bell {
 public:
  /// Wakes the owner if it sleeps. Call it after making visible what the owner may be waiting for.
  void ring();
  /// Sleeps until somebody rings, but no longer than `longest`, and not at all if `changed` is true already.
  void sleep_unless(const std::function<bool()>& changed, std::chrono::microseconds longest);

 private:
  alignas(64) std::atomic<uint32_t> rings_ = 0;
  std::atomic<uint32_t> sleeping_ = 0;
};

static_assert(std::atomic<uint32_t>::is_always_lock_free, "atomics between processes must not use locks");

}  // namespace joinsum::runtime::communication::shared_memory

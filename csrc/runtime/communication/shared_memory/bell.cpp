#include "runtime/communication/shared_memory/bell.h"

#include <ctime>
#include <limits>
#include <unistd.h>

#include <linux/futex.h>
#include <sys/syscall.h>

namespace joinsum::runtime::communication::shared_memory {

// Both exchange `sleeping_`: whoever comes second sees what the first one did before. So either the owner sees the
// change, or who rings sees that the owner sleeps.

void Bell::ring() {
  if (sleeping_.exchange(0) == 0) return;
  rings_.fetch_add(1);
  syscall(SYS_futex, &rings_, FUTEX_WAKE, std::numeric_limits<int>::max(), nullptr, nullptr, 0);
}

void Bell::sleep_unless(const std::function<bool()>& changed, std::chrono::microseconds longest) {
  const uint32_t before = rings_.load();
  sleeping_.exchange(1);
  if (!changed()) {
    const timespec timeout{longest.count() / 1'000'000, (longest.count() % 1'000'000) * 1000};
    syscall(SYS_futex, &rings_, FUTEX_WAIT, before, &timeout, nullptr, 0);
  }
  sleeping_.store(0);
}

}  // namespace joinsum::runtime::communication::shared_memory

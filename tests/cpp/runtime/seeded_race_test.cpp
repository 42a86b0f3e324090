#include <thread>

#include <gtest/gtest.h>

#include "runtime/communication/shared_memory/ring.h"

#ifdef __SANITIZE_THREAD__

namespace joinsum::runtime::communication::shared_memory {
namespace {

/// Reads a ring's bytes without waiting for the writer to publish them.
void read_too_early() {
  char bytes[kLine] = {};
  RingCounts counts;
  std::thread writer([&] {
    const char text[kLine] = "joinsum";
    RingWriter(counts, bytes, kLine).write(text, kLine);
  });
  const volatile char first = bytes[0];
  static_cast<void>(first);
  writer.join();
}

TEST(SeededRaceDeathTest, IsFoundByTheThreadSanitizer) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(read_too_early(), "data race");
}

}  // namespace
}  // namespace joinsum::runtime::communication::shared_memory

#endif

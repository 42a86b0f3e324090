#include "runtime/communication/shared_memory/bell.h"

#include <thread>

#include <gtest/gtest.h>

namespace joinsum::runtime::communication::shared_memory {
namespace {

using namespace std::chrono_literals;

TEST(Bell, DoesNotSleepAfterTheChange) {
  Bell bell;
  const auto start = std::chrono::steady_clock::now();
  bell.sleep_unless([] { return true; }, 60s);
  EXPECT_LT(std::chrono::steady_clock::now() - start, 30s);
}

TEST(Bell, SleepsNoLongerThanItIsTold) {
  Bell bell;
  bell.sleep_unless([] { return false; }, 20ms);
}

TEST(Bell, WakesAtEveryChangeWheneverItComes) {
  constexpr int kChanges = 20'000;
  Bell there;
  Bell back;
  std::atomic<int> asked = 0;
  std::atomic<int> answered = 0;
  std::thread other([&] {
    for (int i = 1; i <= kChanges; ++i) {
      while (asked < i) there.sleep_unless([&] { return asked >= i; }, 60s);
      answered = i;
      back.ring();
    }
  });
  for (int i = 1; i <= kChanges; ++i) {
    asked = i;
    there.ring();
    while (answered < i) back.sleep_unless([&] { return answered >= i; }, 60s);
  }
  other.join();
  EXPECT_EQ(answered, kChanges);
}

}  // namespace
}  // namespace joinsum::runtime::communication::shared_memory

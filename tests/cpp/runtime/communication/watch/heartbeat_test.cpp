#include "runtime/communication/watch/heartbeat.h"

#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

namespace joinsum::runtime::communication::watch {
namespace {

using namespace std::chrono_literals;

/// Two sites whose heartbeats are frequent, in one process.
class TwoHeartbeats : public ::testing::Test {
 protected:
  c10::intrusive_ptr<c10d::Store> store_ = c10::make_intrusive<c10d::HashStore>();
  std::unique_ptr<Heartbeat> first_ = std::make_unique<Heartbeat>(store_, 0, 2, 100ms);
  std::unique_ptr<Heartbeat> second_ = std::make_unique<Heartbeat>(store_, 1, 2, 100ms);

  /// Lets the first site wait until `condition` holds; false if it does not within a minute.
  bool first_waits_until(const std::function<bool()>& condition) {
    for (int i = 0; i < 6000; ++i) {
      first_->advance(10ms);
      if (condition()) return true;
      std::this_thread::sleep_for(10ms);
    }
    return false;
  }
};

TEST_F(TwoHeartbeats, ASiteThatHasEndedBecomesSilent) {
  second_->begin_call();
  ASSERT_TRUE(first_waits_until([&] { return first_->ahead(1) > 0ms; }));  // it has been seen
  second_.reset();
  EXPECT_TRUE(first_waits_until([&] { return first_->silence(1) >= 500ms; }));
  EXPECT_LT(first_->store_silence(), 500ms);
}

TEST_F(TwoHeartbeats, TimeInWhichThisSiteDoesNotWaitIsNoSilence) {
  second_.reset();
  std::this_thread::sleep_for(300ms);
  EXPECT_EQ(first_->silence(1), 0ms);
}

TEST_F(TwoHeartbeats, ASiteInALaterCallIsAhead) {
  first_->begin_call();
  second_->begin_call();
  EXPECT_EQ(first_->ahead(1), 0ms);
  second_->begin_call();
  EXPECT_TRUE(first_waits_until([&] { return first_->ahead(1) > 0ms; }));
  first_->begin_call();
  EXPECT_EQ(first_->ahead(1), 0ms);
}

TEST_F(TwoHeartbeats, AReportIsOfOneCall) {
  first_->begin_call();
  second_->begin_call();
  second_->report("out of memory");
  ASSERT_TRUE(first_waits_until([&] { return first_->reported(0ms).has_value(); }));
  EXPECT_EQ(first_->reported(0ms), "out of memory");
  first_->begin_call();
  EXPECT_EQ(first_->reported(0ms), std::nullopt);
}

TEST_F(TwoHeartbeats, AReportCountsAfterTheGraceThatTheReaderGives) {
  first_->begin_call();
  second_->begin_call();
  second_->report("out of memory");
  ASSERT_TRUE(first_waits_until([&] { return first_->reported(0ms).has_value(); }));
  EXPECT_EQ(first_->reported(1h), std::nullopt);
}

TEST_F(TwoHeartbeats, TheFirstReasonPublishedIsEverySites) {
  EXPECT_EQ(first_->failure(), std::nullopt);
  EXPECT_EQ(second_->publish("lost site 3"), "lost site 3");
  EXPECT_EQ(first_->publish("lost site 4"), "lost site 3");
  EXPECT_EQ(first_->failure(), "lost site 3");
}

}  // namespace
}  // namespace joinsum::runtime::communication::watch

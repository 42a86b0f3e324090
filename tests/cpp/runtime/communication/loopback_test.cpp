#include <gtest/gtest.h>

#include "base/check.h"
#include "runtime/communication/transport.h"

namespace joinsum::runtime::communication {
namespace {

TEST(Loopback, HasAllSitesInThisProcess) {
  const auto transport = make_loopback(3);
  EXPECT_EQ(transport->name(), "loopback");
  EXPECT_EQ(transport->sites(), 3);
  EXPECT_EQ(transport->local_sites(), (std::vector<int64_t>{0, 1, 2}));
  EXPECT_THROW(make_loopback(0), PlanError);
}

TEST(Loopback, HandsArraysOverWithoutCopyingAndCountsTheirBytes) {
  const auto transport = make_loopback(2);
  const at::Tensor x = at::arange(5, at::kLong);
  const at::Tensor y = at::arange(2, at::kLong);
  const auto received =
      transport->start("move", {{0, 1, 40}, {1, 0, 16}}, x.options(), [&](size_t i) { return i == 0 ? x : y; })->wait();
  EXPECT_TRUE(received[0].is_same(x));
  EXPECT_TRUE(received[1].is_same(y));
  EXPECT_EQ(transport->counters().sent, 7 * 8);
  EXPECT_EQ(transport->counters().received, 7 * 8);
}

TEST(Loopback, RefusesAPayloadOfAnotherSize) {
  const auto transport = make_loopback(2);
  const at::Tensor x = at::arange(5, at::kLong);
  EXPECT_THROW(transport->start("move", {{0, 1, 32}}, x.options(), [&](size_t) { return x; }), InternalError);
}

TEST(Loopback, AgreesWithItself) {
  const auto transport = make_loopback(2);
  transport->agree("run", "plan");
  EXPECT_EQ(transport->gather_texts("rates", "1.5"), (std::vector<std::string>{"1.5", "1.5"}));
  EXPECT_EQ(transport->all_reduce_max({1.0, -2.0}), (std::vector<double>{1.0, -2.0}));
  EXPECT_EQ(transport->counters().sent, 0);
}

}  // namespace
}  // namespace joinsum::runtime::communication

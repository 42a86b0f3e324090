#include "base/check.h"

#include <gtest/gtest.h>

namespace joinsum {
namespace {

template <class E, class Run>
std::string message_of(Run run) {
  try {
    run();
  } catch (const E& error) {
    return error.what();
  }
  return "nothing raised";
}

TEST(Checks, AMessageJoinsItsPartsAndPrintsLists) {
  EXPECT_EQ(concatenate("join: keys=", std::vector<int64_t>{0, 1}, ", arity=", 2), "join: keys=[0, 1], arity=2");
  EXPECT_EQ(concatenate(std::vector<std::vector<int>>{{1}, {}, {2, 3}}), "[[1], [], [2, 3]]");
  EXPECT_EQ(concatenate(std::vector<std::string>{}), "[]");
}

TEST(Checks, TheFaultDecidesTheTypeOfTheError) {
  const auto user = [] { JOINSUM_USER_CHECK(1 > 2, "op: wrong: a=", 1); };
  const auto kernel = [] { JOINSUM_KERNEL_CHECK(false, "add: wrong: b=", 2); };
  const auto defect = [] { JOINSUM_CHECK(2 + 2 == 5, "c=", 3); };
  EXPECT_EQ(message_of<PlanError>(user), "op: wrong: a=1");
  EXPECT_EQ(message_of<KernelError>(kernel), "add: wrong: b=2");
  const std::string text = message_of<InternalError>(defect);
  EXPECT_TRUE(text.starts_with("joinsum defect: ")) << text;
  EXPECT_NE(text.find("check_test.cpp:"), std::string::npos) << text;
  EXPECT_NE(text.find("2 + 2 == 5 c=3"), std::string::npos) << text;
}

TEST(Checks, ATrueConditionRaisesNothingAndComputesNoMessage) {
  int computed = 0;
  const auto text = [&] { return ++computed; };
  JOINSUM_USER_CHECK(true, text());
  JOINSUM_KERNEL_CHECK(true, text());
  JOINSUM_CHECK(true, text());
  EXPECT_EQ(computed, 0);
}

TEST(Checks, EveryErrorIsOneOfJoinsums) {
  EXPECT_THROW(throw TransportError("lost"), Error);
  EXPECT_THROW(throw PlanError("wrong"), Error);
  EXPECT_THROW(throw KernelError("wrong"), Error);
  EXPECT_THROW(throw InternalError("wrong"), Error);
}

}  // namespace
}  // namespace joinsum

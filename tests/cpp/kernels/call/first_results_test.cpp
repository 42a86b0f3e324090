#include "kernels/call/first_results.h"

#include <gtest/gtest.h>

namespace joinsum::kernels::call {
namespace {

TEST(FirstResults, AreThoseOfTheRunThatComputesAResult) {
  Scanner scanner("0; aten::max.dim; ab -> a:f32, a:i64; (%0{a,b}, 1) -> {a}, {a}; undivided=b");
  const Call maximum = Call::parse(scanner);
  Call position = maximum;
  position.output = 1;
  Call other = maximum;
  other.function = "aten::min";
  FirstResults<Dims, int> results;
  EXPECT_EQ(results.first({0}, maximum, 10), 10);
  EXPECT_EQ(results.first({0}, position, 11), 10);
  EXPECT_EQ(results.first({1}, position, 12), 12);
  EXPECT_EQ(results.first({0}, other, 13), 13);
  EXPECT_EQ(results.first({1}, maximum, 14), 12);
}

}  // namespace
}  // namespace joinsum::kernels::call

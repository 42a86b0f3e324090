#include "optimizer/division/key_dims.h"

#include <gtest/gtest.h>

#include "tra/text.h"

namespace joinsum::optimizer::division {
namespace {

using At = std::vector<std::pair<size_t, int64_t>>;

const tra::Node& output_of(const tra::Plan& plan) { return *plan.outputs()[0].node; }

TEST(KeyDims, OfAJoinAreItsKeysWithTheOperandsThatHaveThem) {
  const tra::Plan plan = tra::parse(R"(tra
input X: f32[8,6]<4,3>
input Y: f32[6,10]<3,5>
output Z = join[1; 0; matmul](X, Y)
)");
  const auto dims = key_dims(output_of(plan));
  ASSERT_EQ(dims.size(), 3);
  EXPECT_EQ(dims[0].at, (At{{0, 0}}));
  EXPECT_EQ(dims[1].at, (At{{0, 1}, {1, 0}}));
  EXPECT_EQ(dims[2].at, (At{{1, 1}}));
  for (size_t d = 0; d < 3; ++d) EXPECT_EQ(dims[d].keys, output_of(plan).type().frontier[d]);
  EXPECT_EQ(dims[1].of(1), 0);
  EXPECT_EQ(dims[2].of(0), std::nullopt);
}

TEST(KeyDims, OfOtherOperatorsAreThoseOfTheirOperand) {
  const tra::Plan plan = tra::parse("tra\ninput X: f32[8,6]<4,3>\noutput Z = agg[0; add](X)\n");
  const auto dims = key_dims(output_of(plan));
  ASSERT_EQ(dims.size(), 2);
  EXPECT_EQ(dims[0].keys, 4);
  EXPECT_EQ(dims[1].keys, 3);
  EXPECT_EQ(dims[1].at, (At{{0, 1}}));
}

}  // namespace
}  // namespace joinsum::optimizer::division

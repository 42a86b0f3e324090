#include "sparse/tensor/fills.h"

#include <limits>

#include <gtest/gtest.h>

#include "base/check.h"

namespace joinsum::sparse::tensor {
namespace {

TEST(Fills, OfAggregatesAreManyApplications) {
  for (const Operator op : operators::all_operators()) {
    if (!operators::aggregates(op)) continue;
    for (const double x : {0.0, 1.0, 2.0, -1.5}) {
      double value = operators::identity_of(op);
      for (int n = 1; n <= 5; ++n) {
        value = operators::apply(op, value, x);
        EXPECT_NEAR(fill_of_aggregate(DType::kFloat64, op, x, n), value, 1e-14) << name_of(op) << " " << x << " " << n;
      }
    }
    EXPECT_EQ(fill_of_aggregate(DType::kFloat64, op, 7, 0), operators::identity_of(op));
  }
}

TEST(Fills, AreRoundedAsTheDtypeRounds) {
  const double tenth = static_cast<double>(0.1F);
  EXPECT_EQ(fill_of_map(DType::kFloat32, Operator::kMultiply, {tenth, tenth}), static_cast<double>(0.1F * 0.1F));
  EXPECT_NE(fill_of_map(DType::kFloat64, Operator::kMultiply, {tenth, tenth}), static_cast<double>(0.1F * 0.1F));
  EXPECT_EQ(fill_of_aggregate(DType::kFloat32, Operator::kMultiply, 10, 60), std::numeric_limits<double>::infinity());
}

TEST(Fills, OfIntegersWrapAround) {
  EXPECT_EQ(fill_of_map(DType::kInt32, Operator::kMultiply, {1 << 20, 1 << 20}), 0);
  EXPECT_EQ(fill_of_map(DType::kUInt8, Operator::kAdd, {200, 200}), 144);
  EXPECT_EQ(fill_of_map(DType::kUInt8, Operator::kMultiply, {-1, 3}), 253);
  EXPECT_EQ(fill_of_map(DType::kInt32, Operator::kDivide, {3, 0}), 0);
  EXPECT_EQ(fill_of_aggregate(DType::kInt32, Operator::kMultiply, 3, 20), -808182895);
}

TEST(Fills, OverNothingAreTheExtremesOfIntegers) {
  EXPECT_EQ(fill_of_aggregate(DType::kInt32, Operator::kMax, 5, 0), std::numeric_limits<int32_t>::min());
  EXPECT_EQ(fill_of_aggregate(DType::kUInt8, Operator::kMin, 5, 0), 255);
  // The largest one that a double is.
  EXPECT_EQ(fill_of_aggregate(DType::kInt64, Operator::kMin, 5, 0), 9223372036854774784.0);
}

TEST(Fills, ThatNoDoubleIsAreRefused) {
  constexpr double kMost = 9007199254740992;
  EXPECT_EQ(fill_of_map(DType::kInt64, Operator::kAdd, {kMost, 2}), kMost + 2);
  EXPECT_THROW((void)fill_of_map(DType::kInt64, Operator::kAdd, {kMost, 1}), PlanError);
}

TEST(Fills, ThatAnnihilateDecideWhereTheMapHasThem) {
  EXPECT_EQ(fill_of_map(DType::kFloat64, Operator::kAdd,
                        {1, -std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()}),
            -std::numeric_limits<double>::infinity());
  EXPECT_TRUE(
      decides(Operator::kAdd, -std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()));
  EXPECT_FALSE(
      decides(Operator::kAdd, std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()));
  EXPECT_FALSE(decides(Operator::kMultiply, 1, 1));
}

}  // namespace
}  // namespace joinsum::sparse::tensor

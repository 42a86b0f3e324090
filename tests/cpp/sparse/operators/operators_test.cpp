#include "sparse/operators/operators.h"

#include <random>

#include <gtest/gtest.h>

namespace joinsum::sparse::operators {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<double> numbers() { return {0, 1, -1, 2, -3, 0.5, kInfinity, -kInfinity}; }

TEST(Operators, AreFoundByTheirNames) {
  for (const Operator op : all_operators()) EXPECT_EQ(operator_from_name(name_of(op)), op);
  EXPECT_FALSE(operator_from_name("plus"));
}

TEST(Operators, KeepTheIdentityOfAggregates) {
  for (const Operator op : all_operators()) {
    if (!aggregates(op)) continue;
    for (const double x : numbers()) {
      const double expected = op == Operator::kAnd || op == Operator::kOr ? x != 0 : x;
      EXPECT_EQ(apply(op, x, identity_of(op)), expected) << name_of(op) << " " << x;
    }
  }
}

TEST(Operators, AnnihilateWhateverTheOtherChildIs) {
  for (const Operator op : all_operators()) {
    for (const double z : numbers()) {
      if (!annihilates(op, z)) continue;
      for (const double x : numbers()) {
        // By definition, where arithmetic has no number.
        if (std::isnan(apply(op, x, z))) continue;
        EXPECT_EQ(apply(op, x, z), z) << name_of(op) << " " << x << " " << z;
      }
    }
  }
}

TEST(Operators, DistributeAsTheTableSays) {
  for (const Operator map : all_operators()) {
    for (const Operator over : all_operators()) {
      if (!aggregates(over) || !takes(map, 2)) continue;
      for (const bool positive : {false, true}) {
        if (!distributes(map, over, positive)) continue;
        for (const double a : {0.0, 1.0, 2.0, 3.0, -1.0}) {
          if (positive && a < 0) continue;
          for (const double b : {0.0, 1.0, -2.0, 5.0}) {
            for (const double c : {0.0, 1.0, -2.0, 4.0}) {
              const double rounded = map == Operator::kLogAddExp || over == Operator::kLogAddExp ? 1e-14 : 0;
              EXPECT_NEAR(apply(map, a, apply(over, b, c)), apply(over, apply(map, a, b), apply(map, a, c)), rounded)
                  << name_of(map) << " over " << name_of(over);
            }
          }
        }
      }
    }
  }
  EXPECT_FALSE(distributes(Operator::kMultiply, Operator::kMax));
  EXPECT_FALSE(distributes(Operator::kAdd, Operator::kAdd));
}

TEST(Operators, OfOneChildAreMaps) {
  EXPECT_EQ(apply(Operator::kOr, 3.0), 1);
  EXPECT_EQ(apply(Operator::kAdd, 3.0), 3);
  EXPECT_EQ(apply(Operator::kRelu, -3), 0);
  EXPECT_EQ(apply(Operator::kSigmoid, 0.0), 0.5);
  EXPECT_TRUE(std::isnan(apply(Operator::kMax, 1.0, std::nan(""))));
  EXPECT_TRUE(std::isnan(apply(Operator::kMin, std::nan(""), 1.0)));
}

}  // namespace
}  // namespace joinsum::sparse::operators

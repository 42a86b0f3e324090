#include "kernels/semiring/pair_operations.h"

#include <array>
#include <cmath>

#include <gtest/gtest.h>

#include "kernels/table/table.h"

namespace joinsum::kernels::semiring {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::array<double, 8> kValues{0, -0.0, 1.5, -2, 7, kInfinity, -kInfinity, kNaN};

double joined(Join join, double a, double b) {
  return with_constant(join, [&](auto step) { return combine<step(), false>(a, b); });
}

bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

TEST(PairOperations, AJoinIsTheElementwiseKernelWhoseRowNamesIt) {
  for (const table::Row* row : table::all_rows()) {
    if (!row->joins_by) continue;
    for (const double a : kValues) {
      for (const double b : kValues) {
        const std::array<double, 2> both{a, b};
        EXPECT_PRED2(same, joined(*row->joins_by, a, b), row->element(both.data(), nullptr))
            << row->name << "(" << a << ", " << b << ")";
      }
    }
  }
}

TEST(PairOperations, AReductionIsTheElementwiseKernelWhoseRowNamesIt) {
  for (const table::Row* row : table::reducing_rows()) {
    if (row->reduces_by == Reduction::kLogAddExp) continue;  // it has no step
    for (const double a : kValues) {
      for (const double b : kValues) {
        const std::array<double, 2> both{a, b};
        const double value = with_constant(*row->reduces_by, [&](auto step) { return reduced<step(), false>(a, b); });
        EXPECT_PRED2(same, value, row->element(both.data(), nullptr)) << row->name << "(" << a << ", " << b << ")";
      }
    }
    const double identity = with_constant(*row->reduces_by, [](auto step) { return nothing<step(), double>(); });
    EXPECT_EQ(identity, row->facts.identity) << row->name;
  }
}

TEST(PairOperations, ReversedJoinsExchangeTheirOperands) {
  EXPECT_EQ(joined(Join::kReversedSub, 2, 5), joined(Join::kSub, 5, 2));
  EXPECT_EQ(joined(Join::kReversedDiv, 2, 5), joined(Join::kDiv, 5, 2));
}

TEST(PairOperations, DifferencesOfUnsignedIntegersDoNotWrapAround) {
  EXPECT_EQ((combine<Join::kUnsignedDifference, false, uint8_t>(3, 250)), 247);
  EXPECT_EQ((combine<Join::kUnsignedDifference, false, uint8_t>(250, 3)), 247);
}

TEST(PairOperations, AReductionOfNoIntegersIsTheLeastOrTheLargest) {
  EXPECT_EQ((nothing<Reduction::kMax, int32_t>()), std::numeric_limits<int32_t>::lowest());
  EXPECT_EQ((nothing<Reduction::kMin, uint8_t>()), 255);
}

}  // namespace
}  // namespace joinsum::kernels::semiring

#include "sparse/operators/exponential.h"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace joinsum::sparse::operators {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

/// Distance in units of the last place of the nearest double.
double units_off(double found, long double wanted) {
  const double near = std::abs(static_cast<double>(wanted));
  return static_cast<double>(std::abs(static_cast<long double>(found) - wanted)) /
         (std::nextafter(near, kInfinite) - near);
}

TEST(Exponential, IsWithinTwoUnitsInTheLastPlace) {
  std::mt19937_64 random(5);
  for (const double limit : {1e-9, 1.0, 30.0, 708.0, 745.0}) {
    std::uniform_real_distribution<double> values(-limit, std::min(limit, 709.0));
    for (int i = 0; i < 20'000; ++i) {
      const double x = values(random);
      ASSERT_LT(units_off(exponential(x), std::exp(static_cast<long double>(x))), 2) << x;
      const auto single = static_cast<float>(x);
      ASSERT_EQ(exponential(single), static_cast<float>(exponential(static_cast<double>(single)))) << x;
    }
  }
}

TEST(Exponential, EndsAtZeroAndInfinity) {
  EXPECT_EQ(exponential(0.0), 1);
  EXPECT_EQ(exponential(-0.0), 1);
  EXPECT_EQ(exponential(kInfinite), kInfinite);
  EXPECT_EQ(exponential(-kInfinite), 0);
  EXPECT_EQ(exponential(710.0), kInfinite);
  EXPECT_EQ(exponential(1e300), kInfinite);
  EXPECT_EQ(exponential(-1e300), 0);
  EXPECT_EQ(exponential(-745.0), std::numeric_limits<double>::denorm_min());
  EXPECT_TRUE(std::isnan(exponential(std::numeric_limits<double>::quiet_NaN())));
  EXPECT_EQ(sigmoid(kInfinite), 1);
  EXPECT_EQ(sigmoid(-kInfinite), 0);
  EXPECT_EQ(sigmoid(0.0F), 0.5F);
}

template <class T>
void expect_rows() {
  std::mt19937_64 random(6);
  std::normal_distribution<double> values(0, 200);
  for (const int64_t count : {0, 1, 7, 8, 33, 1000}) {
    std::vector<T> x(count), exponents(count), sigmoids_of(count);
    for (T& each : x) each = static_cast<T>(values(random));
    if (count > 1) x[1] = std::numeric_limits<T>::quiet_NaN();
    exponentials(x.data(), count, exponents.data());
    sigmoids(x.data(), count, sigmoids_of.data());
    for (int64_t i = 0; i < count; ++i) {
      if (i == 1) {
        EXPECT_TRUE(std::isnan(exponents[i]) && std::isnan(sigmoids_of[i]));
        continue;
      }
      // Bit for bit, whatever instructions the loops take.
      EXPECT_EQ(exponents[i], exponential(x[i]));
      EXPECT_EQ(sigmoids_of[i], sigmoid(x[i]));
    }
  }
}

TEST(Exponential, RowsHaveTheSameValues) {
  expect_rows<double>();
  expect_rows<float>();
}

}  // namespace
}  // namespace joinsum::sparse::operators

#include "kernels/pairs/exponential_products.h"

#include <limits>

#include <gtest/gtest.h>

namespace joinsum::kernels::pairs {
namespace {

using semiring::Join;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

at::Tensor joined(Join join, const at::Tensor& a, const at::Tensor& b) {
  if (join == Join::kAdd) return a + b;
  return join == Join::kSub ? a - b : b - a;
}

/// left[b, r, k] ⊗ right[b, k, c], in double precision.
at::Tensor all(Join join, const at::Tensor& left, const at::Tensor& right) {
  return joined(join, left.to(at::kDouble).unsqueeze(3), right.to(at::kDouble).unsqueeze(1));
}

struct Drawn {
  explicit Drawn(at::ScalarType type, double spread)
      : left(at::randn({2, 40, 50}, type) * spread), right(at::randn({2, 50, 60}, type) * spread) {}

  at::Tensor left, right;
};

TEST(ExponentialProducts, GiveTheLogarithmsOfSumsOfLargeAndSmallTerms) {
  at::manual_seed(40);
  for (const Join join : {Join::kAdd, Join::kSub, Join::kReversedSub}) {
    for (const auto type : {at::kFloat, at::kDouble}) {
      for (const double spread : {0.1, 3.0, 8.0}) {
        const Drawn x(type, spread);
        const auto result = logarithms_of_sums(join, x.left, x.right);
        if (spread == 8.0 && !result) continue;
        ASSERT_TRUE(result);
        const at::Tensor wanted = all(join, x.left, x.right).logsumexp(2);
        EXPECT_TRUE(at::allclose(result->to(at::kDouble), wanted, type == at::kFloat ? 2e-6 : 1e-14,
                                 type == at::kFloat ? 5e-6 : 1e-13))
            << spread;
      }
    }
  }
}

TEST(ExponentialProducts, TakeTermsOneByOneWhereLargeElementsMeetSmallOnes) {
  at::manual_seed(41);
  Drawn x(at::kFloat, 1);
  x.left.select(1, 3).slice(1, 1).fill_(-200);   // of row 3 the first element alone is large,
  x.right.select(2, 4).select(1, 0).fill_(-90);  // where column 4 has a small one
  x.left[0][5].fill_(-kInfinity);
  const auto result = logarithms_of_sums(Join::kAdd, x.left, x.right);
  ASSERT_TRUE(result);
  EXPECT_TRUE(at::allclose(result->to(at::kDouble), all(Join::kAdd, x.left, x.right).logsumexp(2), 1e-6, 1e-5));
}

TEST(ExponentialProducts, LeaveInfinitiesAndNumbersFarApartToLoops) {
  Drawn x(at::kFloat, 1);
  x.left[1][2][3] = kInfinity;
  EXPECT_FALSE(logarithms_of_sums(Join::kAdd, x.left, x.right));
  x.left[1][2][3] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(logarithms_of_sums(Join::kAdd, x.left, x.right));
  const Drawn far(at::kFloat, 100);
  EXPECT_FALSE(logarithms_of_sums(Join::kAdd, far.left, far.right));
  EXPECT_FALSE(logarithms_of_sums(Join::kMul, far.left, far.right));
}

TEST(ExponentialProducts, GiveSharesOfSums) {
  at::manual_seed(42);
  for (const Join join : {Join::kAdd, Join::kSub, Join::kReversedSub}) {
    for (const auto type : {at::kFloat, at::kDouble}) {
      const Drawn x(type, 1);
      at::Tensor sums = all(join, x.left, x.right).logsumexp(2).to(type);
      sums[1][7][9] -= 40;  // beyond what a product takes
      const at::Tensor weight = at::randn({2, 40, 60}, type);
      const at::Tensor other = x.right.transpose(1, 2);  // by b, c and k
      const auto result = sums_of_shares(join, {x.left, sums, weight, other});
      ASSERT_TRUE(result);
      const at::Tensor terms =
          weight.to(at::kDouble).unsqueeze(2) * (all(join, x.left, x.right) - sums.to(at::kDouble).unsqueeze(2)).exp();
      const at::Tensor wanted = terms.sum(3), scale = terms.abs().sum(3);
      EXPECT_TRUE(
          ((result->to(at::kDouble) - wanted).abs() <= (type == at::kFloat ? 1e-5 : 1e-12) * scale).all().item<bool>());
    }
  }
}

TEST(ExponentialProducts, LeaveInfiniteWeightsToLoops) {
  const Drawn x(at::kFloat, 1);
  at::Tensor weight = at::ones({2, 40, 60});
  weight[0][1][2] = kInfinity;
  EXPECT_FALSE(sums_of_shares(Join::kAdd, {x.left, at::full({2, 40, 60}, 5.0), weight, x.right.transpose(1, 2)}));
}

}  // namespace
}  // namespace joinsum::kernels::pairs

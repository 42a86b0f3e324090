#include "kernels/dense/row_sums.h"

#include <cmath>

#include <gtest/gtest.h>

#include "kernels/dense/dense.h"

namespace joinsum::kernels::dense {
namespace {

void expect_sum(const at::Tensor& x, const Dims& axes) {
  const auto found = sum_of_rows(x, axes);
  ASSERT_TRUE(found) << x.sizes() << " by " << x.strides();
  const at::Tensor wanted = x.to(at::kDouble).sum(axes);
  EXPECT_EQ(found->sizes(), wanted.sizes());
  EXPECT_EQ(found->scalar_type(), x.scalar_type());
  const double most = x.scalar_type() == at::kFloat ? 1e-6 : 1e-14;
  const at::Tensor size = x.to(at::kDouble).abs().sum(axes);
  EXPECT_TRUE(((found->to(at::kDouble) - wanted).abs() <= most * size).all().item<bool>())
      << x.sizes() << " by " << x.strides();
}

TEST(RowSums, AreSumsOverAxesThatAreNotOneStretch) {
  at::manual_seed(0);
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const at::Tensor x = at::randn({4, 64, 3, 1500}, type);
    expect_sum(x.narrow(1, 5, 40), {0, 1});
    expect_sum(x.narrow(1, 5, 40).narrow(3, 100, 1200), {0, 1});
    expect_sum(x, {0, 2});
    expect_sum(x, {2, 0});
    expect_sum(x.permute({2, 1, 0, 3}), {0, 2});
    expect_sum(at::randn({2, 1, 5, 9}, type).expand({2, 3, 5, 9}), {0, 1});
    expect_sum(at::randn({300, 70, 2, 5}, type).narrow(2, 0, 1).narrow(1, 0, 69), {0, 1});
  }
}

TEST(RowSums, OfManyRowsStayAccurate) { expect_sum(at::rand({400, 300, 16}).narrow(1, 0, 299), {0, 1}); }

TEST(RowSums, LeaveOtherSumsToTorch) {
  const at::Tensor x = at::randn({4, 64, 3, 16});
  EXPECT_FALSE(sum_of_rows(x, {0})) << "one axis";
  EXPECT_FALSE(sum_of_rows(x, {0, 1})) << "axes that are one stretch";
  EXPECT_FALSE(sum_of_rows(x.transpose(1, 3), {0, 1})) << "columns";
  EXPECT_FALSE(sum_of_rows(x.to(at::kBFloat16), {0, 2})) << "floats of half width";
  EXPECT_FALSE(sum_of_rows(x.narrow(0, 0, 0), {0, 2})) << "nothing";
}

TEST(RowSums, OfArraysAreAddedInOrder) {
  at::manual_seed(0);
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    for (const int64_t elements : {1, 1023, 1024, 2500, 100'000}) {
      std::vector<at::Tensor> arrays;
      for (int64_t i = 0; i < 5; ++i) arrays.push_back(at::randn({elements}, type) * std::pow(10.0, i % 3));
      at::Tensor wanted = arrays[0].clone();
      for (size_t i = 1; i < arrays.size(); ++i) wanted.add_(arrays[i]);
      const at::Tensor into = at::empty({elements}, type);
      ASSERT_TRUE(sum_in_order(arrays, into));
      EXPECT_TRUE(at::equal(into, wanted)) << elements;
      ASSERT_TRUE(sum_in_order(arrays, arrays[3]));
      EXPECT_TRUE(at::equal(arrays[3], wanted)) << elements << " into one of them";
    }
  }
}

TEST(RowSums, OfOtherArraysAreLeft) {
  const at::Tensor x = at::ones({4, 6});
  const at::Tensor into = at::zeros({4, 6});
  EXPECT_FALSE(sum_in_order({x, at::ones({6, 4}).t()}, into)) << "columns";
  EXPECT_FALSE(sum_in_order({x, at::ones({6, 4})}, into)) << "another shape";
  EXPECT_FALSE(sum_in_order({x, at::ones({4, 6}, at::kDouble)}, into)) << "another dtype";
  EXPECT_FALSE(sum_in_order({x.to(at::kLong), x.to(at::kLong)}, into.to(at::kLong))) << "integers";
  EXPECT_FALSE(sum_in_order({x, at::_neg_view(x)}, into)) << "a view that negates";
  EXPECT_TRUE(at::equal(into, at::zeros({4, 6})));
}

TEST(RowSums, AreThoseOfReducedAxes) {
  const at::Tensor x = at::randn({4, 64, 100}, at::kDouble).narrow(1, 3, 50);
  EXPECT_TRUE(at::allclose(reduce_axes("add", x, {0, 1}), x.sum(at::IntArrayRef{0, 1})));
}

}  // namespace
}  // namespace joinsum::kernels::dense

#include "kernels/dense/row_sums.h"

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

TEST(RowSums, AreThoseOfReducedAxes) {
  const at::Tensor x = at::randn({4, 64, 100}, at::kDouble).narrow(1, 3, 50);
  EXPECT_TRUE(at::allclose(reduce_axes("add", x, {0, 1}), x.sum(at::IntArrayRef{0, 1})));
}

}  // namespace
}  // namespace joinsum::kernels::dense

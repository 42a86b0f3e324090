#include "kernels/products/products.h"

#include <array>
#include <limits>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "kernels/products/openblas.h"

namespace joinsum::kernels::products {
namespace {

constexpr int64_t kBatch = 3;

/// [batch,] rows × columns of random numbers, whose memory has the axes in another order, or gaps.
at::Tensor matrix(int64_t rows, int64_t columns, bool batched, int layout, at::ScalarType type = at::kFloat) {
  const auto options = at::TensorOptions().dtype(type);
  const int64_t batch = batched ? kBatch : 1;
  at::Tensor out;
  switch (layout) {
    case 0:
      out = at::randn({batch, rows, columns}, options);
      break;
    case 1:
      out = at::randn({batch, columns, rows}, options).transpose(1, 2);
      break;
    case 2:
      out = at::randn({batch, rows + 5, columns + 7}, options).narrow(1, 2, rows).narrow(2, 3, columns);
      break;
    case 3:
      out = at::randn({rows, batch, columns}, options).transpose(0, 1);
      break;
    case 4:
      out = at::randn({batch, 1, columns}, options).expand({batch, rows, columns});
      break;
    default:
      out = at::randn({batch, rows, columns, 2}, options).select(3, 0);
      break;
  }
  return batched ? out : out[0];
}

constexpr int kLayouts = 6;
constexpr int kOutLayouts = 4;

void expect_near(const at::Tensor& found, const at::Tensor& left, const at::Tensor& right, const at::Tensor& expected) {
  const at::Tensor magnitude = at::matmul(left.to(at::kDouble).abs(), right.to(at::kDouble).abs()) + 1;
  EXPECT_LE(((found.to(at::kDouble) - expected).abs() / magnitude).max().item<double>(), 1e-6);
}

at::Tensor exact(const at::Tensor& left, const at::Tensor& right) {
  return at::matmul(left.to(at::kDouble), right.to(at::kDouble));
}

TEST(Products, OfEveryLayoutEqualThoseInDoublePrecision) {
  for (const bool batched : {false, true}) {
    for (int a = 0; a < kLayouts; ++a) {
      for (int b = 0; b < kLayouts; ++b) {
        SCOPED_TRACE(::testing::Message() << "batched " << batched << ", layouts " << a << " and " << b);
        const at::Tensor left = matrix(96, 130, batched, a);
        const at::Tensor right = matrix(130, 110, batched, b);
        expect_near(matrix_product(left, right), left, right, exact(left, right));
      }
    }
  }
}

TEST(Products, AreAddedToArraysOfEveryLayout) {
  for (const bool batched : {false, true}) {
    for (int layout = 0; layout < kOutLayouts; ++layout) {
      SCOPED_TRACE(::testing::Message() << "batched " << batched << ", layout " << layout);
      const at::Tensor left = matrix(96, 130, batched, 0);
      const at::Tensor right = matrix(130, 110, batched, 1);
      const at::Tensor out = matrix(96, 110, batched, layout);
      const at::Tensor expected = 0.5 * out.to(at::kDouble) - 2 * exact(left, right);
      matrix_product_into(out, left, right, 0.5, -2);
      expect_near(out, left, right, expected);
      const at::Tensor before = out.clone();
      matrix_product_into(out, left, right, 2, 0);
      EXPECT_TRUE(out.equal(2 * before));
    }
  }
}

TEST(Products, LeaveWhatLiesBetweenRows) {
  const at::Tensor whole = at::full({100, 120}, 7.0F);
  const at::Tensor left = matrix(96, 130, false, 0);
  const at::Tensor right = matrix(130, 110, false, 0);
  matrix_product_into(whole.narrow(0, 2, 96).narrow(1, 4, 110), left, right);
  whole.narrow(0, 2, 96).narrow(1, 4, 110).fill_(7.0F);
  EXPECT_TRUE(whole.equal(at::full({100, 120}, 7.0F)));
}

TEST(Products, ReadNothingFromAnArrayThatIsOverwritten) {
  const at::Tensor left = matrix(96, 130, false, 0);
  const at::Tensor right = matrix(130, 110, false, 0);
  const at::Tensor out = at::full({96, 110}, std::numeric_limits<float>::quiet_NaN());
  matrix_product_into(out, left, right);
  expect_near(out, left, right, exact(left, right));
}

TEST(Products, OfAnySizeAndTypeEqualTorch) {
  const std::vector<std::array<int64_t, 3>> sizes{{1, 1, 1}, {0, 3, 4}, {3, 0, 4}, {2, 600, 1000}, {1000, 600, 2}};
  for (const auto& [rows, inner, columns] : sizes) {
    for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kLong}) {
      SCOPED_TRACE(::testing::Message() << rows << " " << inner << " " << columns << " " << type);
      const at::Tensor left = matrix(rows, inner, false, 0, at::kFloat).mul_(8).to(type);
      const at::Tensor right = matrix(inner, columns, false, 0, at::kFloat).mul_(8).to(type);
      EXPECT_TRUE(matrix_product(left, right).equal(at::mm(left, right)));
    }
  }
}

TEST(Products, OfTheSameNumbersAreTheSameEachTime) {
  const at::Tensor left = matrix(256, 1024, false, 0);
  const at::Tensor right = matrix(1024, 256, false, 1);
  const at::Tensor first = matrix_product(left, right);
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(matrix_product(left, right.clone()).equal(first));
}

TEST(Products, OfMatricesThatDoNotFitAreRefusedByTorch) {
  EXPECT_THROW(matrix_product(at::ones({200, 300}), at::ones({200, 300})), c10::Error);
  EXPECT_THROW(matrix_product(at::ones({2, 200, 300}), at::ones({3, 300, 200})), c10::Error);
}

struct WithoutOneDnn {
  WithoutOneDnn() { at::globalContext().setUserEnabledMkldnn(false); }
  ~WithoutOneDnn() { at::globalContext().setUserEnabledMkldnn(true); }
};

TEST(Products, FollowTorchsSwitchOfOneDnn) {
  if (openblas_is_faster()) GTEST_SKIP() << "OpenBLAS multiplies here";
  const at::Tensor left = matrix(256, 2048, false, 0);
  const at::Tensor right = matrix(2048, 256, false, 0);
  // Other libraries add the terms in another order.
  EXPECT_EQ(matrix_product(left, right).equal(at::mm(left, right)), !onednn_is_faster());
  const WithoutOneDnn without;
  EXPECT_FALSE(onednn_is_faster());
  EXPECT_TRUE(matrix_product(left, right).equal(at::mm(left, right)));
}

}  // namespace
}  // namespace joinsum::kernels::products

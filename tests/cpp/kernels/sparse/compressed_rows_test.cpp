#include "kernels/sparse/compressed_rows.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "base/check.h"
#include "kernels/sparse/arrays.h"

namespace joinsum::kernels::sparse {
namespace {

using joinsum::sparse::tensor::LevelFormat;
using joinsum::sparse::tensor::Tensor;

/// Whole numbers, of which sums are exact, at some places.
at::Tensor drawn(int64_t rows, int64_t columns, double density, at::ScalarType type) {
  const at::Tensor places = at::rand({rows, columns}, at::kDouble) < density;
  return (at::randint(-3, 4, {rows, columns}, at::kDouble) * places).to(type);
}

CompressedRows matrix(const at::Tensor& x) {
  const std::vector<LevelFormat> formats{LevelFormat::kDense, LevelFormat::kSortedList};
  return CompressedRows(std::make_shared<Tensor>(from_coordinates(coordinates_of(x.to_sparse()), {0, 1}, formats, 0)));
}

at::Tensor dense_of(const Tensor& tensor) {
  check(tensor);
  return coo_of(to_coordinates(tensor)).to_dense();
}

TEST(CompressedRows, ProductsAreTorchsOnAnyNumberOfThreads) {
  for (const auto type : {at::kFloat, at::kDouble}) {
    for (const double density : {0.0, 0.01, 0.2}) {
      // The largest are divided among threads.
      for (const auto& [m, k, n] : {std::array<int64_t, 3>{1, 1, 1}, {7, 5, 9}, {600, 500, 700}, {4, 3000, 5}}) {
        const at::Tensor a = drawn(m, k, density, type), b = drawn(k, n, density, type), c = drawn(m, n, density, type);
        const at::Tensor x = drawn(k, 24, 1, type), y = drawn(m, 24, 1, type), v = drawn(k, 1, 1, type).squeeze(1);
        const CompressedRows of_a = matrix(a), of_b = matrix(b), of_c = matrix(c);
        for (const int threads : {1, 2, 3}) {
          at::set_num_threads(threads);
          EXPECT_TRUE(at::equal(of_a.times(x), a.matmul(x)));
          EXPECT_TRUE(at::equal(of_a.times(x.t().contiguous().t()), a.matmul(x)));
          EXPECT_TRUE(at::equal(of_a.times(v), a.matmul(v)));
          EXPECT_TRUE(at::equal(of_a.transposed_times(y), a.t().matmul(y)));
          EXPECT_TRUE(at::equal(of_a.transposed_times(y.select(1, 0)), a.t().matmul(y.select(1, 0))));
          EXPECT_TRUE(at::equal(of_a.sums(), a.sum(1)));
          EXPECT_TRUE(at::equal(dense_of(of_a.sampled(y, x)), a * y.matmul(x.t())));
          EXPECT_TRUE(at::equal(dense_of(of_a.scaled_rows(y.select(1, 0))), a * y.narrow(1, 0, 1)));
          EXPECT_TRUE(at::equal(dense_of(of_a.scaled_columns(v)), a * v));
          EXPECT_TRUE(at::equal(dense_of(of_a.times(of_b)), a.matmul(b)));
          EXPECT_TRUE(at::equal(dense_of(of_a.times_at(of_b, of_c)), a.matmul(b) * c));
        }
      }
    }
  }
}

TEST(CompressedRows, ElementsThatCancelAreStored) {
  const at::Tensor a = at::tensor({1.0, 1.0}, at::kDouble).view({1, 2});
  const at::Tensor b = at::tensor({2.0, -2.0}, at::kDouble).view({2, 1});
  EXPECT_EQ(matrix(a).times(matrix(b)).stored(), 1);
}

TEST(CompressedRows, LeaveOtherOperandsToOthers) {
  const CompressedRows a = matrix(drawn(4, 5, 0.5, at::kDouble));
  EXPECT_FALSE(a.times(at::ones({5}, at::kFloat)).defined());
  EXPECT_FALSE(a.times(at::ones({4}, at::kDouble)).defined());
  EXPECT_FALSE(a.transposed_times(at::ones({5}, at::kDouble)).defined());
  EXPECT_FALSE(a.times(at::ones({5, 2, 2}, at::kDouble)).defined());
  EXPECT_FALSE(a.times(at::ones({5}, at::kDouble).requires_grad_()).defined());
  EXPECT_FALSE(a.times(at::ones({5, 2}, at::kDouble).to_sparse()).defined());
  const auto list =
      std::make_shared<Tensor>(from_coordinates(coordinates_of(drawn(4, 5, 0.5, at::kDouble).to_sparse()), {0, 1},
                                                {LevelFormat::kSortedList, LevelFormat::kSortedList}, 0));
  EXPECT_FALSE(CompressedRows::fits(*list));
  EXPECT_THROW(CompressedRows{list}, PlanError);
}

}  // namespace
}  // namespace joinsum::kernels::sparse

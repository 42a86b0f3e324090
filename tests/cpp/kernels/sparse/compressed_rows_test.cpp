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

/// What each product gives; of sparse results their dense form.
std::vector<at::Tensor> results_of(const CompressedRows& a, const CompressedRows& b, const CompressedRows& c,
                                   const at::Tensor& x, const at::Tensor& y) {
  const at::Tensor v = x.select(1, 0).contiguous(), w = y.select(1, 0).contiguous();
  std::vector<at::Tensor> out{a.times(x), a.times(v),     a.transposed_times(y), a.transposed_times(w),
                              a.sums(),   a.column_sums()};
  for (const Tensor& sparse : {a.sampled(y, x), a.scaled_rows(w), a.scaled_columns(v), a.times(b), a.times_at(b, c)}) {
    out.push_back(dense_of(sparse));
  }
  return out;
}

TEST(CompressedRows, ResultsOfRealNumbersDoNotDependOnTheNumberOfThreads) {
  const int before = at::get_num_threads();
  for (const auto type : {at::kFloat, at::kDouble}) {
    // Of as many entries as eight threads are given, in rows of which the first have the most.
    const int64_t rows = 1200, columns = 1500;
    const at::Tensor skewed = at::linspace(0.9, 0.1, rows, at::kDouble).unsqueeze(1);
    const auto real = [&](int64_t m, int64_t n) { return at::randn({m, n}, at::kDouble).exp().to(type); };
    const at::Tensor places = at::rand({rows, columns}, at::kDouble) < skewed;
    const CompressedRows a = matrix(real(rows, columns) * places);
    const CompressedRows b = matrix(real(columns, 90) * (at::rand({columns, 90}, at::kDouble) < 0.1));
    const CompressedRows c = matrix(real(rows, 90) * (at::rand({rows, 90}, at::kDouble) < 0.3));
    const at::Tensor x = real(columns, 40), y = real(rows, 40);
    at::set_num_threads(1);
    const std::vector<at::Tensor> one = results_of(a, b, c, x, y);
    for (const int threads : {2, 3, 8}) {
      at::set_num_threads(threads);
      const std::vector<at::Tensor> many = results_of(a, b, c, x, y);
      for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(at::equal(many[i], one[i])) << i << ", threads " << threads;
    }
  }
  at::set_num_threads(before);
}

TEST(CompressedRows, ShortRowsTimesAVectorDoNotDependOnTheNumberOfThreads) {
  const int before = at::get_num_threads();
  for (const auto type : {at::kFloat, at::kDouble, at::kLong}) {
    // The first 256 rows have a tenth of all entries.
    const at::Tensor density = at::full({30'001, 1}, 0.1, at::kDouble);
    density.slice(0, 0, 256).fill_(0.9);
    const at::Tensor kept = at::rand({30'001, 150}, at::kDouble) < density;
    const at::Tensor dense = (4 * at::randn({30'001, 150}, at::kDouble) * kept).to(type);
    const CompressedRows a = matrix(dense);
    const at::Tensor x = (4 * at::randn({150}, at::kDouble)).to(type);
    at::set_num_threads(1);
    const at::Tensor one = a.times(x);
    EXPECT_TRUE(at::allclose(one, dense.mv(x), 1e-4, 1e-3));
    for (const int threads : {2, 3, 8}) {
      at::set_num_threads(threads);
      EXPECT_TRUE(at::equal(a.times(x), one)) << threads;
    }
  }
  at::set_num_threads(before);
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
  EXPECT_FALSE(CompressedRows::of(list).has_value());
  EXPECT_FALSE(CompressedRows::of_transposed(list).has_value());
  EXPECT_THROW(CompressedRows{list}, PlanError);
}

}  // namespace
}  // namespace joinsum::kernels::sparse

#include "kernels/products/openblas.h"

#include <array>
#include <dlfcn.h>
#include <filesystem>
#include <limits>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

namespace joinsum::kernels::products {
namespace {

/// The library of scipy_openblas32 beside the torch that this program runs with.
std::filesystem::path library() {
  Dl_info torch{};
  dladdr(reinterpret_cast<void*>(&at::get_num_threads), &torch);
  const std::filesystem::path packages =
      std::filesystem::path(torch.dli_fname).parent_path().parent_path().parent_path();
  return packages / "scipy_openblas32" / "lib" / "libscipy_openblas.so";
}

/// [batch,] rows × columns of random numbers, by rows or by columns, with a gap between them.
at::Tensor matrix(int64_t batch, int64_t rows, int64_t columns, bool by_rows, at::ScalarType type) {
  const int64_t inner = by_rows ? columns : rows;
  const at::Tensor wide = at::randn({std::max<int64_t>(batch, 1), by_rows ? rows : columns, inner + 3}, type);
  at::Tensor out = wide.narrow(2, 1, inner);
  if (!by_rows) out = out.transpose(1, 2);
  return batch == 0 ? out[0] : out;
}

class OpenBlas : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(library())) GTEST_SKIP() << "no package scipy_openblas32";
    set_openblas(library().string());
  }
};

TEST_F(OpenBlas, ProductsAreTorchsForEveryLayoutTypeAndNumberOfThreads) {
  const int most = at::get_num_threads();
  for (int threads = 1; threads <= most; ++threads) {
    at::set_num_threads(threads);
    for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
      for (int layout = 0; layout < 8; ++layout) {
        for (const auto& [batch, rows, inner, columns] :
             {std::array<int64_t, 4>{0, 301, 130, 170}, {0, 65, 400, 290}, {3, 97, 120, 200}, {1, 401, 128, 161}}) {
          SCOPED_TRACE(::testing::Message() << threads << " threads, layout " << layout << ", batch " << batch);
          const at::Tensor left = matrix(batch, rows, inner, (layout & 1) != 0, type);
          const at::Tensor right = matrix(batch, inner, columns, (layout & 2) != 0, type);
          const at::Tensor out = matrix(batch, rows, columns, (layout & 4) != 0, type);
          ASSERT_TRUE(fits_openblas(left, right));
          const at::Tensor product = at::matmul(left.to(at::kDouble), right.to(at::kDouble));
          const at::Tensor expected = 0.5 * out.to(at::kDouble) - 2 * product;
          openblas_product(out, left, right, 0.5, -2);
          const double tolerance = type == at::kFloat ? 1e-3 : 1e-10;
          EXPECT_TRUE(at::allclose(out.to(at::kDouble), expected, tolerance, tolerance));
          out.fill_(std::numeric_limits<double>::quiet_NaN());
          openblas_product(out, left, right, 0, 1);
          EXPECT_TRUE(at::allclose(out.to(at::kDouble), product, tolerance, tolerance));
        }
      }
    }
  }
  at::set_num_threads(most);
}

TEST_F(OpenBlas, SmallProductsAndOtherTypesAreTorchs) {
  const at::Tensor large = at::ones({512, 512});
  EXPECT_TRUE(fits_openblas(large, large));
  EXPECT_FALSE(fits_openblas(large.narrow(0, 0, 8), large));
  EXPECT_FALSE(fits_openblas(large.narrow(0, 0, 32).narrow(1, 0, 32), large.narrow(0, 0, 32)));
  EXPECT_FALSE(fits_openblas(large.to(at::kBFloat16), large.to(at::kBFloat16)));
  EXPECT_FALSE(fits_openblas(large.to(at::kLong), large.to(at::kLong)));
}

}  // namespace
}  // namespace joinsum::kernels::products

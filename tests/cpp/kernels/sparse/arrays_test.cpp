#include "kernels/sparse/arrays.h"

#include <limits>

#include <gtest/gtest.h>

#include "base/check.h"

namespace joinsum::kernels::sparse {
namespace {

at::Tensor drawn(at::ScalarType type) {
  return (at::randint(1, 5, {6, 5}, at::kDouble) * at::randint(0, 2, {6, 5}, at::kDouble)).to(type);
}

TEST(SparseArrays, ElementsAreReadBack) {
  for (const auto type : {at::kFloat, at::kDouble, at::kLong, at::kBool}) {
    const at::Tensor x = drawn(type).to_sparse();
    EXPECT_TRUE(at::equal(coo_of(coordinates_of(x)).to_dense(), x.to_dense()));
    EXPECT_TRUE(at::equal(coo_of(to_coordinates(levels_of(x, 0))).to_dense(), x.to_dense()));
    EXPECT_TRUE(at::equal(tensor_of(levels_of(x.to_dense(), 0).values).view({6, 5}), x.to_dense()));
  }
}

TEST(SparseArrays, FoldsCountWhatIsNotStoredAsNothing) {
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<at::Tensor> parts = {drawn(at::kDouble), drawn(at::kDouble), drawn(at::kDouble)};
  std::vector<at::Tensor> sparse;
  for (const at::Tensor& part : parts) sparse.push_back(part.to_sparse());
  const at::Tensor stored = (parts[0] != 0).logical_or(parts[1] != 0).logical_or(parts[2] != 0);
  const auto expected = [&](double nothing, const auto& combine) {
    at::Tensor out = at::full({6, 5}, nothing, at::kDouble);
    for (const at::Tensor& part : parts) out = combine(out, at::where(part != 0, part, nothing));
    return at::where(stored, out, 0);
  };
  EXPECT_TRUE(at::equal(folded(sparse, "add").to_dense(), expected(0, [](auto a, auto b) { return a + b; })));
  EXPECT_TRUE(at::equal(folded(sparse, "mul").to_dense(), expected(1, [](auto a, auto b) { return a * b; })));
  const auto least = expected(infinity, [](auto a, auto b) { return at::minimum(a, b); });
  EXPECT_TRUE(at::equal(folded(sparse, "min").to_dense(), least));
  const auto most = expected(-infinity, [](auto a, auto b) { return at::maximum(a, b); });
  EXPECT_TRUE(at::equal(folded(sparse, "max").to_dense(), most));
  EXPECT_TRUE(folded(sparse, "add").is_coalesced());
  EXPECT_THROW(folded(sparse, "sub"), KernelError);
}

}  // namespace
}  // namespace joinsum::kernels::sparse

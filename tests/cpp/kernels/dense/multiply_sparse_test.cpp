#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "kernels/dense/dense.h"
#include "kernels/dense/random_contraction.h"

namespace joinsum::kernels::dense {

using table::Subscripts;

namespace {

/// About half of the elements, so that some are not stored; the dense one has zeros in their place.
std::pair<at::Tensor, at::Tensor> thinned(const at::Tensor& x) {
  const at::Tensor dense = x * at::randint(0, 2, x.sizes(), x.options().dtype(at::kLong)).to(x.scalar_type());
  return {dense, dense.to_sparse()};
}

TEST(MultiplySparse, AgreesWithDenseOperandsOnRandomLabels) {
  std::mt19937_64 random(20);
  int compared = 0;
  for (int i = 0; i < 2000; ++i) {
    const auto type = i % 3 == 0 ? at::kLong : i % 3 == 1 ? at::kDouble : at::kFloat;
    const RandomContraction c(random, type);
    const int which = i % 2;
    if (c.operands[which].dim() == 0) continue;
    const auto [dense, sparse] = thinned(c.operands[which]);
    std::vector<at::Tensor> operands{c.operands[0], c.operands[1]};
    operands[which] = dense;
    const at::Tensor wanted = contract(c.labels, operands[0], operands[1]);
    operands[which] = sparse;
    ASSERT_TRUE(at::equal(contract(c.labels, operands[0], operands[1]), wanted)) << c.labels.text();
    const at::Tensor before = at::randint(-3, 4, wanted.sizes(), wanted.options());
    const at::Tensor out = RandomContraction::reordered(before.clone(), random);
    EXPECT_TRUE(contract(c.labels, operands[0], operands[1], out, i % 4 < 2).is_same(out));
    ASSERT_TRUE(at::equal(out, i % 4 < 2 ? before + wanted : wanted)) << c.labels.text();
    ++compared;
  }
  EXPECT_GT(compared, 1500);
}

TEST(MultiplySparse, TakesNarrowFloatsAndComplexNumbers) {
  for (const auto type : {at::kBFloat16, at::kHalf, at::kComplexDouble}) {
    const auto [dense, sparse] = thinned(at::randint(-4, 5, {30, 20}).to(type));
    const at::Tensor y = at::randint(-4, 5, {20, 9}).to(type);
    const auto labels = Subscripts::parse("ij,jk->ik");
    EXPECT_TRUE(at::allclose(contract(labels, sparse, y).to(at::kComplexDouble),
                             dense.to(at::kComplexDouble).mm(y.to(at::kComplexDouble))));
  }
}

TEST(MultiplySparse, ResultsDoNotDependOnTheNumberOfThreads) {
  const auto [dense, sparse] = thinned(at::randn({600, 500}));
  const at::Tensor y = at::randn({500, 70}), z = at::randn({600, 70});
  const int before = at::get_num_threads();
  std::vector<at::Tensor> found;
  for (const int threads : {1, 2, 5}) {
    at::set_num_threads(threads);
    found.push_back(contract(Subscripts::parse("ij,jk->ik"), sparse, y));
    found.push_back(contract(Subscripts::parse("ij,ik->jk"), sparse, z));
  }
  at::set_num_threads(before);
  for (size_t i = 2; i < found.size(); ++i) EXPECT_TRUE(at::equal(found[i], found[i % 2]));
  EXPECT_TRUE(at::allclose(found[0], dense.mm(y), 1e-4, 1e-3));
  EXPECT_TRUE(at::allclose(found[1], dense.t().mm(z), 1e-4, 1e-3));
}

TEST(MultiplySparse, RefusesTwoSparseOperands) {
  const at::Tensor x = at::eye(3).to_sparse();
  EXPECT_THROW(contract(Subscripts::parse("ij,jk->ik"), x, x), KernelError);
}

}  // namespace
}  // namespace joinsum::kernels::dense

#include <gtest/gtest.h>

#include "kernels/dense/dense.h"
#include "kernels/dense/random_contraction.h"

namespace joinsum::kernels::dense {

using table::Subscripts;

namespace {

TEST(Contract, AgreesWithTheReferenceOnRandomLabels) {
  std::mt19937_64 random(10);
  for (int i = 0; i < 2000; ++i) {
    const auto type = i % 3 == 0 ? at::kLong : i % 3 == 1 ? at::kDouble : at::kFloat;
    const RandomContraction c(random, type);
    const at::Tensor result = contract(c.labels, c.operands[0], c.operands[1]);
    ASSERT_EQ(result.scalar_type(), type);
    ASSERT_TRUE(result.sizes() == c.wanted.sizes() && at::equal(result, c.wanted))
        << c.labels.text() << c.operands[0].sizes() << c.operands[1].sizes();
  }
}

TEST(Contract, WritesToOutOrIncreasesIt) {
  std::mt19937_64 random(11);
  for (int i = 0; i < 1000; ++i) {
    const RandomContraction c(random, i % 2 == 0 ? at::kLong : at::kFloat);
    const at::Tensor before = at::randint(-3, 4, c.wanted.sizes(), c.wanted.options());
    const bool accumulate = i % 4 < 2;
    const at::Tensor out = RandomContraction::reordered(before.clone(), random);
    EXPECT_TRUE(contract(c.labels, c.operands[0], c.operands[1], out, accumulate).is_same(out));
    ASSERT_TRUE(at::equal(out, accumulate ? before + c.wanted : c.wanted)) << c.labels.text();
  }
}

TEST(Contract, TakesNarrowFloats) {
  std::mt19937_64 random(12);
  for (int i = 0; i < 300; ++i) {
    const RandomContraction c(random, i % 2 == 0 ? at::kBFloat16 : at::kHalf);
    ASSERT_TRUE(near(contract(c.labels, c.operands[0], c.operands[1]), c.wanted, 2e-2)) << c.labels.text();
  }
}

TEST(Contract, LeavesTheResultContiguousInTheUsualCases) {
  const at::Tensor a = at::ones({4, 5}), b = at::ones({5, 6}), x = at::ones({3, 4, 5}), w = at::ones({3, 5, 6});
  EXPECT_TRUE(contract(Subscripts::parse("ij,jk->ik"), a, b).is_contiguous());
  EXPECT_TRUE(contract(Subscripts::parse("ij,jk->ki"), a, b).is_contiguous());
  EXPECT_TRUE(contract(Subscripts::parse("ji,jk->ik"), b, b).is_contiguous());
  EXPECT_TRUE(contract(Subscripts::parse("bij,bjk->bik"), x, w).is_contiguous());
  EXPECT_TRUE(contract(Subscripts::parse("bij,jk->bik"), x, b).is_contiguous());
  EXPECT_TRUE(contract(Subscripts::parse("i,j->ij"), a[0], b[0]).is_contiguous());
}

TEST(Contract, NamesWhatIsWrong) {
  const at::Tensor a = at::ones({2, 3});
  const auto error = [&](const std::string& labels, const at::Tensor& b, at::Tensor out = {}) {
    return message_of<KernelError>([&] { contract(Subscripts::parse(labels), a, b, out); });
  };
  EXPECT_EQ(error("ij,jk->ik", at::ones({4, 2})),
            "contract: extents of a letter differ: letter=j, labels=ij,jk->ik, shapes=[[2, 3], [4, 2]]");
  EXPECT_EQ(error("ij,jk->ik", at::ones({3, 2}, at::kDouble)),
            "contract: dtypes of the operands differ: left=Float, right=Double");
  EXPECT_EQ(error("ij,jj->i", at::ones({3, 3})),
            "contract: letter occurs twice in one operand: labels=ij,jj->i, letter=j");
  EXPECT_EQ(error("ij,jk->ik", at::ones({3, 2}), at::ones({2, 3})),
            "contract: out does not fit: labels=ij,jk->ik, shape=[2, 2]");
}

}  // namespace
}  // namespace joinsum::kernels::dense

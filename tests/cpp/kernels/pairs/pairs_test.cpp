#include <array>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "kernels/dense/loops.h"
#include "kernels/dense/random_contraction.h"

namespace joinsum::kernels::pairs {

using dense::contract;
using dense::message_of;
using dense::near;
using dense::RandomContraction;
using dense::reduce_axes;
using dense::scalar_type;
using table::all_rows;
using table::Kernel;
using table::result_dtype;
using table::Row;
using table::Subscripts;

namespace {

std::vector<const Row*> pair_rows() {
  std::vector<const Row*> rows;
  for (const Row* row : all_rows()) {
    if (row->name.starts_with("contract_")) rows.push_back(row);
  }
  return rows;
}

bool takes(const Row& row, DType dtype) {
  try {
    result_dtype({row.name, {"ij,jk->ik"}}, {dtype, dtype});
    return true;
  } catch (const KernelError&) {
    return false;
  }
}

/// The pair's contraction "ij,jk->ik" by torch's own operators, on the whole joined array.
at::Tensor joined_and_reduced(const Row& row, const at::Tensor& left, const at::Tensor& right) {
  const at::Tensor joined = dense::run({row.combine, {}}, {left.unsqueeze(2), right.unsqueeze(0)});
  return reduce_axes(row.reduction, joined, {1});
}

TEST(Pairs, AgreeWithTheReferenceOnRandomLabels) {
  std::mt19937_64 random(20);
  for (const Row* row : pair_rows()) {
    for (int i = 0; i < 120; ++i) {
      const auto dtype = std::array{DType::kFloat64, DType::kFloat32, DType::kInt64}[i % 3];
      if (!takes(*row, dtype)) continue;
      const RandomContraction c(random, scalar_type(dtype), row->name);
      if (c.wanted.numel() > 0 && dtype == DType::kInt64 &&
          c.wanted.to(at::kDouble).abs().max().item<double>() > 0x1p53)
        continue;
      const at::Tensor result = dense::run(c.kernel, c.operands);
      ASSERT_EQ(result.scalar_type(), c.wanted.scalar_type());
      ASSERT_TRUE(near(result, c.wanted, dtype == DType::kFloat32 ? 1e-5 : 1e-12))
          << c.kernel.text() << c.operands[0].sizes() << c.operands[1].sizes() << " on " << name_of(dtype);
    }
  }
}

TEST(Pairs, ReduceIntoOut) {
  std::mt19937_64 random(21);
  for (const Row* row : pair_rows()) {
    for (int i = 0; i < 40; ++i) {
      const auto type = i % 2 == 0 ? at::kDouble : at::kFloat;
      const RandomContraction c(random, type, row->name);
      const at::Tensor before = at::randint(1, 4, c.wanted.sizes(), c.wanted.options());
      const at::Tensor out = RandomContraction::reordered(before.clone(), random);
      const bool accumulate = i % 4 < 2;
      EXPECT_TRUE(contract(c.kernel, c.labels, c.operands[0], c.operands[1], out, accumulate).is_same(out));
      const at::Tensor wanted = accumulate ? dense::run({row->reduction, {}}, {before, c.wanted}) : c.wanted;
      ASSERT_TRUE(near(out, wanted, type == at::kFloat ? 1e-5 : 1e-12)) << c.kernel.text() << before.sizes();
    }
  }
}

TEST(Pairs, ReduceNarrowFloatsIntoOutInSinglePrecision) {
  const at::Tensor ones = at::ones({1, 3000}, at::kBFloat16);
  const Kernel kernel = Kernel::parse("contract_max_add[ij,jk->ik]");
  const at::Tensor out = at::full({1, 1}, 1000.0, ones.options());
  contract(kernel, Subscripts::parse("ij,jk->ik"), ones, ones.t(), out, true);
  EXPECT_EQ(out.item<double>(), 4000.0);
}

/// Extents beyond the blocks of rows, columns and sums, and one off the tiles; operands that lie along either axis.
TEST(Pairs, AreExactAcrossBlocks) {
  at::manual_seed(22);
  const Dims extents{131, 517, 1061};
  for (const Row* row : pair_rows()) {
    if (row->reduction == "mul" || row->reduction == "logaddexp" || row->domain == Domain::kFloating) continue;
    const Kernel kernel{row->name, {"ij,jk->ik"}};
    const at::Tensor left = at::randint(-9, 10, {extents[0], extents[1]}, at::kFloat);
    const at::Tensor right = at::randint(-9, 10, {extents[2], extents[1]}, at::kFloat).t();
    std::vector<at::Tensor> wanted;
    for (const at::Tensor& rows : left.split(16)) wanted.push_back(joined_and_reduced(*row, rows, right));
    EXPECT_TRUE(at::equal(dense::run(kernel, {left, right}), at::cat(wanted))) << row->name;
    if (row->combine != "add") continue;
    const at::Tensor result = dense::run(kernel, {left.t().contiguous().t(), right.contiguous()});
    EXPECT_TRUE(at::equal(result, at::cat(wanted))) << row->name << ", the other way round";
  }
}

TEST(Pairs, NameAnOutThatDoesNotFit) {
  const at::Tensor a = at::ones({2, 3});
  const auto error = [&](const at::Tensor& b, const at::Tensor& out) {
    return message_of<KernelError>(
        [&] { contract(Kernel::parse("contract_add_min[ij,jk->ik]"), Subscripts::parse("ij,jk->ik"), a, b, out); });
  };
  EXPECT_EQ(error(at::ones({3, 2}), at::ones({2, 3})),
            "contract_add_min: out does not fit: labels=ij,jk->ik, shape=[2, 2]");
  EXPECT_EQ(error(at::ones({4, 2}), at::ones({2, 2})),
            "contract_add_min: extents of a letter differ: letter=j, labels=ij,jk->ik, shapes=[[2, 3], [4, 2]]");
}

}  // namespace
}  // namespace joinsum::kernels::pairs

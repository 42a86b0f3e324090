#include "kernels/reference/reference.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace joinsum::kernels::reference {

using table::Kernel;
using table::register_row;
using table::Scalars;
using table::unregister_row;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Array vector(std::vector<double> values) { return {{static_cast<int64_t>(values.size())}, std::move(values)}; }
Array matrix(int64_t rows, int64_t columns, std::vector<double> values) { return {{rows, columns}, std::move(values)}; }

Array run(const std::string& kernel, const std::vector<Array>& operands, const Scalars& scalars = {},
          int64_t output = 0) {
  return reference::run(Kernel::parse(kernel), operands, scalars, output);
}

std::vector<double> map(const std::string& kernel, std::vector<double> values) {
  return run(kernel, {vector(std::move(values))}).values;
}

std::vector<double> both(const std::string& kernel, std::vector<double> a, std::vector<double> b,
                         const Scalars& scalars = {}) {
  return run(kernel, {vector(std::move(a)), vector(std::move(b))}, scalars).values;
}

using Values = std::vector<double>;

void expect_near(const Values& values, const Values& wanted) {
  ASSERT_EQ(values.size(), wanted.size());
  for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], wanted[i], 1e-12) << i;
}

TEST(Reference, MatrixProducts) {
  const Array a = matrix(2, 3, {1, 2, 3, 4, 5, 6});
  const Array b = matrix(3, 2, {7, 8, 9, 10, 11, 12});
  const Array product = matrix(2, 2, {58, 64, 139, 154});
  const Array a_transposed = matrix(3, 2, {1, 4, 2, 5, 3, 6});
  const Array b_transposed = matrix(2, 3, {7, 9, 11, 8, 10, 12});
  EXPECT_EQ(run("matmul", {a, b}), product);
  EXPECT_EQ(run("matmul_tn", {a_transposed, b}), product);
  EXPECT_EQ(run("matmul_nt", {a, b_transposed}), product);
  EXPECT_EQ(run("contract[ij,jk->ik]", {a, b}), product);
  EXPECT_EQ(run("contract[ij,jk->ki]", {a, b}), matrix(2, 2, {58, 139, 64, 154}));
}

TEST(Reference, Contractions) {
  const Array a = matrix(2, 2, {1, 2, 3, 4});
  const Array b = matrix(2, 2, {5, 6, 7, 8});
  EXPECT_EQ(run("contract[ij,ij->ij]", {a, b}), matrix(2, 2, {5, 12, 21, 32}));
  EXPECT_EQ(run("contract[ij,ij->]", {a, b}), (Array{{}, {70}}));
  EXPECT_EQ(run("contract[ij,kl->]", {a, b}), (Array{{}, {260}}));
  EXPECT_EQ(run("contract[ij,k->i]", {a, vector({1, 10})}), vector({33, 77}));
  EXPECT_EQ(run("contract[i,j->ji]", {vector({1, 2}), vector({3, 4})}), matrix(2, 2, {3, 6, 4, 8}));
  EXPECT_EQ(run("contract[,->]", {Array{{}, {3}}, Array{{}, {4}}}), (Array{{}, {12}}));
}

TEST(Reference, ASumOverNothingIsZero) {
  EXPECT_EQ(run("matmul", {matrix(2, 0, {}), matrix(0, 2, {})}), matrix(2, 2, {0, 0, 0, 0}));
  EXPECT_EQ(run("row_sum", {matrix(2, 0, {})}), vector({0, 0}));
  EXPECT_EQ(run("row_max", {matrix(2, 0, {})}), vector({-kInfinity, -kInfinity}));
}

TEST(Reference, OtherPairsCombineAndReduce) {
  const Array a = matrix(2, 3, {1, 2, 3, 4, 5, 6}), b = matrix(2, 3, {0, 2, 4, 1, 1, 1});
  EXPECT_EQ(run("contract_add_min[ij,kj->ik]", {a, b}), matrix(2, 2, {1, 2, 4, 5}));
  EXPECT_EQ(run("contract_sub_max[ij,kj->ki]", {a, b}), matrix(2, 2, {1, 4, 2, 5}));
  EXPECT_EQ(run("contract_squared_difference_add[ij,kj->ik]", {a, b}), matrix(2, 2, {2, 5, 29, 50}));
  EXPECT_EQ(run("contract_abs_difference_mul[ij,ij->]", {a, b}), (Array{{}, {0}}));
}

TEST(Reference, ReductionsPermuteTakeDiagonalsAndReduce) {
  const Array a = matrix(2, 3, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(run("arrange[ij->ji]", {a}), matrix(3, 2, {1, 4, 2, 5, 3, 6}));
  EXPECT_EQ(run("arrange[ii->i]", {matrix(2, 2, {1, 2, 3, 4})}), vector({1, 4}));
  EXPECT_EQ(run("reduce_mul[ij->j]", {a}), vector({4, 10, 18}));
  EXPECT_EQ(run("reduce_min[ij->]", {a}), (Array{{}, {1}}));
  EXPECT_EQ(run("reduce_add[ii->]", {matrix(2, 2, {1, 2, 3, 4})}), (Array{{}, {5}}));
  EXPECT_EQ(run("reduce_logaddexp[i->]", {vector({0, 0})}), (Array{{}, {std::log1p(1.0)}}));
  EXPECT_EQ(run("reduce_logaddexp[i->]", {vector({})}), (Array{{}, {-kInfinity}}));
}

TEST(Reference, NewAxesRepeatOrHoldADiagonal) {
  EXPECT_EQ(run("expand[1, 3]", {vector({1, 2})}), matrix(2, 3, {1, 1, 1, 2, 2, 2}));
  EXPECT_EQ(run("embed_diagonal[1, 0]", {vector({1, 2})}), matrix(2, 2, {1, 0, 0, 2}));
}

TEST(Reference, Arithmetic) {
  EXPECT_EQ(both("add", {1, 2}, {10, -2}), (Values{11, 0}));
  EXPECT_EQ(both("sub", {1, 2}, {10, -2}), (Values{-9, 4}));
  EXPECT_EQ(both("mul", {3, 2}, {10, -2}), (Values{30, -4}));
  EXPECT_EQ(both("div", {3, 2}, {2, -4}), (Values{1.5, -0.5}));
  EXPECT_EQ(both("min", {3, 2}, {2, 4}), (Values{2, 2}));
  EXPECT_EQ(both("max", {3, 2}, {2, 4}), (Values{3, 4}));
  EXPECT_EQ(both("squared_difference", {3, 2}, {1, 5}), (Values{4, 9}));
  EXPECT_EQ(both("abs_difference", {3, 2}, {1, 5}), (Values{2, 3}));
  EXPECT_EQ(both("equal", {3, 2}, {3, 5}), (Values{1, 0}));
  EXPECT_EQ(both("above", {3, 2}, {3, 1}), (Values{0.5, 1}));
  EXPECT_EQ(both("above", {3, kNan}, {4, 1}), (Values{0, 1}));
  EXPECT_EQ(both("logaddexp", {0, -kInfinity}, {0, -kInfinity}), (Values{std::log1p(1.0), -kInfinity}));
}

TEST(Reference, MinAndMaxKeepNan) {
  for (const std::string kernel : {"min", "max"}) {
    for (const double value : both(kernel, {kNan, 1}, {1, kNan})) EXPECT_TRUE(std::isnan(value)) << kernel;
  }
  EXPECT_TRUE(std::isnan(run("row_max", {matrix(1, 2, {kNan, 1})}).values[0]));
}

TEST(Reference, ElementwiseOperandsBroadcast) {
  EXPECT_EQ(run("add", {matrix(2, 1, {1, 2}), vector({10, 20, 30})}), matrix(2, 3, {11, 21, 31, 12, 22, 32}));
  EXPECT_EQ(run("sub", {Array{{}, {1}}, vector({10, 20})}), vector({-9, -19}));
  EXPECT_EQ(run("mul", {matrix(2, 1, {1, 2}), Array{{0}, {}}}), matrix(2, 0, {}));
}

TEST(Reference, AlgebraicFunctions) {
  EXPECT_EQ(map("id", {1, -2}), (Values{1, -2}));
  EXPECT_EQ(map("scale[0.5]", {1, -2}), (Values{0.5, -1}));
  EXPECT_EQ(run("scale[$n]", {vector({1, -2})}, {{"n", 3}}).values, (Values{3, -6}));
  EXPECT_EQ(map("negate", {1, -2}), (Values{-1, 2}));
  EXPECT_EQ(map("square", {3, -2}), (Values{9, 4}));
  EXPECT_EQ(map("reciprocal", {4, -2}), (Values{0.25, -0.5}));
  EXPECT_EQ(map("abs", {4, -2}), (Values{4, 2}));
  EXPECT_EQ(map("sqrt", {4, 2.25}), (Values{2, 1.5}));
}

TEST(Reference, Functions) {
  EXPECT_EQ(map("relu", {4, 0, -2}), (Values{4, 0, 0}));
  EXPECT_EQ(map("relu_derivative", {4, 0, -2}), (Values{1, 0, 0}));
  expect_near(map("sigmoid", {0, std::log(3.0), -std::log(3.0), 800, -800}), {0.5, 0.75, 0.25, 1, 0});
  expect_near(map("tanh", {0, std::log(2.0)}), {0, 0.6});
  expect_near(map("exp", {0, std::log(5.0)}), {1, 5});
  expect_near(map("log", {1, std::exp(2.0)}), {0, 2});
  expect_near(map("softplus", {0, std::log(3.0), 800, -800}), {std::log(2.0), std::log(4.0), 800, 0});
}

TEST(Reference, Axes) {
  const Array a = matrix(2, 3, {1, 2, 3, 4, 6, 5});
  EXPECT_EQ(run("row_sum", {a}), vector({6, 15}));
  EXPECT_EQ(run("total", {a}).values, (std::vector<double>{21}));
  EXPECT_EQ(run("row_max", {a}), vector({3, 6}));
  EXPECT_EQ(run("transpose", {a}), matrix(3, 2, {1, 4, 2, 6, 3, 5}));
  EXPECT_EQ(run("diag", {matrix(2, 2, {1, 2, 3, 4})}), vector({1, 4}));
  EXPECT_EQ(run("insert_dim[1]", {a}), (Array{{2, 1, 3}, a.values}));
  EXPECT_EQ(run("duplicate", {a}, {}, 3), a);
  EXPECT_EQ(run("tile[1, 2]", {a}, {}, 0), matrix(2, 2, {1, 2, 4, 6}));
  EXPECT_EQ(run("tile[1, 2]", {a}, {}, 1), matrix(2, 1, {3, 5}));
  EXPECT_EQ(run("concat[1]", {a, matrix(2, 1, {7, 8})}), matrix(2, 4, {1, 2, 3, 7, 4, 6, 5, 8}));
  EXPECT_EQ(run("concat[0]", {matrix(1, 2, {1, 2}), matrix(1, 2, {3, 4})}), matrix(2, 2, {1, 2, 3, 4}));
}

TEST(Reference, CastRoundsToTheDtype) {
  EXPECT_EQ(map("cast[bool]", {0, -3, 0.5}), (Values{0, 1, 1}));
  EXPECT_EQ(map("cast[i64]", {1.9, -1.9}), (Values{1, -1}));
  EXPECT_EQ(map("cast[u8]", {255, 256, 257}), (Values{255, 0, 1}));
  EXPECT_EQ(map("cast[i8]", {127, 128}), (Values{127, -128}));
  EXPECT_EQ(map("cast[f32]", {0.1}), (Values{0.1f}));
  EXPECT_EQ(map("cast[f64]", {0.1}), (Values{0.1}));
  // Eight binary digits: between 256 and 512 the even numbers, ties to multiples of four.
  EXPECT_EQ(map("cast[bf16]", {257, 258, 259, 262, 1.0 / 3}), (Values{256, 258, 260, 262, 0.333984375}));
  EXPECT_EQ(map("cast[bf16]", {3.39e38, 3.4e38, -kInfinity}), (Values{0x1.fep127, kInfinity, -kInfinity}));
  EXPECT_EQ(map("cast[f16]", {2049, 2051, 65504, 65520, 0x1p-24, 0x1p-25}),
            (Values{2048, 2052, 65504, kInfinity, 0x1p-24, 0}));
}

TEST(Reference, Losses) {
  expect_near(both("bce_with_logits", {0, 0, 1000, -1000, 1000}, {0, 1, 1, 1, 0}),
              {std::log(2.0), std::log(2.0), 0, 1000, 1000});
  expect_near(both("bce_with_logits", {std::log(3.0)}, {0.5}), {std::log(4.0) - 0.5 * std::log(3.0)});
  expect_near(both("sigmoid_difference", {0, std::log(3.0)}, {1, 0.25}), {-0.5, 0.5});
}

TEST(Reference, Updates) {
  expect_near(both("sgd_update[0.1]", {1, 2}, {10, -10}), {0, 3});
  expect_near(both("adam_first[0.9]", {1, 2}, {10, -10}), {1.9, 0.8});
  expect_near(both("adam_second[0.75]", {1, 2}, {10, -2}), {25.75, 2.5});
}

/// Adam by hand: the first step of any gradient g is rate · g / (|g| + ε), for m = (1 - β₁) g and v = (1 - β₂) g².
TEST(Reference, TheFirstAdamStepHasTheSizeOfTheRate) {
  const double gradient = -4;
  const Values direction = both("adam_direction[0.01, 0.9, 0.999, 0, $step]", {0.1 * gradient},
                                {0.001 * gradient * gradient}, {{"step", 1}});
  expect_near(direction, {-0.01});
  // m̂ = 0.19 / (1 - 0.81) = 1, v̂ = 4 · 0.75 / (1 - 0.25) = 4, so the step is 0.5 · 1 / (2 + 0.5).
  expect_near(both("adam_direction[0.5, 0.9, 0.5, 0.5, 2]", {0.19}, {3}), {0.2});
}

TEST(Reference, RefusesWhatIsNotItsOwn) {
  register_row({.name = "my_kernel", .summary = "a test's"});
  EXPECT_THROW(run("my_kernel", {vector({1})}), KernelError);
  unregister_row("my_kernel");
  EXPECT_THROW(run("relu", {vector({1})}, {}, 1), KernelError);
  EXPECT_THROW(run("scale[$n]", {vector({1})}), PlanError);
}

}  // namespace
}  // namespace joinsum::kernels::reference

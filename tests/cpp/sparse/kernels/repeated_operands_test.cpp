#include "sparse/kernels/repeated_operands.h"

#include <gtest/gtest.h>

#include "sparse/kernels/expectations.h"
#include "sparse/kernels/interpret.h"

namespace joinsum::sparse::kernels {
namespace {

/// Reads of one tensor, of which at least one looks up lists, and of the rest each its own.
int64_t reads_left(const Case& drawn) {
  int64_t left = std::ssize(drawn.kernel.operands);
  for (const auto& [operand, other] : drawn.same) {
    const std::vector<LevelFormat>& formats = drawn.kernel.operands[operand].formats;
    if (!formats.empty() && formats.back() != LevelFormat::kDense) --left;
  }
  return left;
}

class OperandsOfOneTensor : public testing::TestWithParam<DType> {};

TEST_P(OperandsOfOneTensor, AreReadOnce) {
  RandomKernels random(11);
  for (int i = 0; i < 1500; ++i) {
    SCOPED_TRACE(i);
    const Case drawn = random.draw_repeated(GetParam());
    const auto [kernel, arguments] = without_repeated_operands(drawn.kernel, drawn.arguments());
    check(kernel);
    ASSERT_EQ(std::ssize(kernel.operands), reads_left(drawn));
    ASSERT_EQ(kernel.operands.size(), arguments.operands.size());
    expect_brute_force(drawn, interpret(kernel, arguments));
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(OfEachDType, OperandsOfOneTensor,
                         testing::Values(DType::kFloat32, DType::kFloat64, DType::kInt32, DType::kInt64, DType::kUInt8,
                                         DType::kBool),
                         [](const auto& tested) { return std::string(name_of(tested.param)); });

TEST(RepeatedOperands, StayWhereTensorsLoopsOrFillsDiffer) {
  using enum LevelFormat;
  const auto tensor = from_coordinates(coordinates_of({3, 3}, DType::kFloat64, {{{0, 1}, 2}, {{2, 2}, 3}}), {0, 1},
                                       {kSortedList, kSortedList}, 0);
  const Tensor other = tensor;
  Kernel kernel;
  kernel.operands = {{.loops = {0, 1}, .formats = {kSortedList, kSortedList}},
                     {.loops = {0, 2}, .formats = {kSortedList, kSortedList}},
                     {.loops = {0, 1}, .formats = {kSortedList, kSortedList}}};
  kernel.required = {true, true, true};
  kernel.loops = {{.walkers = {0}, .lookups = {1, 2}}, {.walkers = {0}, .lookups = {2}}, {.walkers = {1}}};
  EXPECT_EQ(without_repeated_operands(kernel, {{&tensor, &tensor, &other}, {3, 3, 3}}).kernel.operands.size(), 3);
  const KernelCall once = without_repeated_operands(kernel, {{&tensor, &tensor, &tensor}, {3, 3, 3}});
  EXPECT_EQ(once.kernel.operands.size(), 2);
  EXPECT_EQ(once.kernel.loops[0].lookups, std::vector<int64_t>{1});
  EXPECT_TRUE(once.kernel.loops[1].lookups.empty());
}

}  // namespace
}  // namespace joinsum::sparse::kernels

#include "runtime/execution/local/dim_modes.h"

#include <gtest/gtest.h>

namespace joinsum::runtime::execution::local {
namespace {

using kernels::table::Kernel;
using relation::RelationType;

TEST(DimModes, ElementwiseKernelsTakeAllPartsOfAnAxisAtOnce) {
  const auto type = RelationType::parse("f64[6,4]<3,2>");
  const Kernel kernel{"add", {}};
  EXPECT_EQ(dim_modes(kernel, {{type, {0, 1}}, {type, {0, 1}}}, type, {}),
            (std::vector<DimMode>{DimMode::kWhole, DimMode::kWhole}));
}

TEST(DimModes, KeysWithoutAnAxisAreBatchAxes) {
  const auto type = RelationType::parse("f64[6@1]<3,2>");
  EXPECT_EQ(dim_modes({"negate", {}}, {{type, {0, 1}}}, type, {}),
            (std::vector<DimMode>{DimMode::kBatch, DimMode::kWhole}));
}

TEST(DimModes, ContractedPartsAreWholeWhereTheyAreReducedToo) {
  const auto x = RelationType::parse("f64[6,4]<3,2>"), w = RelationType::parse("f64[4,8]<2,2>");
  const auto joined = RelationType::parse("f64[6@0,8@2]<3,2,2>");
  const Kernel kernel{"matmul", {}};
  const std::vector<ModeOperand> operands{{x, {0, 1}}, {w, {1, 2}}};
  EXPECT_EQ(dim_modes(kernel, operands, joined, {1}), (std::vector<DimMode>(3, DimMode::kWhole)));
  EXPECT_EQ(dim_modes(kernel, operands, joined, {}),
            (std::vector<DimMode>{DimMode::kWhole, DimMode::kSingle, DimMode::kWhole}));
}

TEST(DimModes, LettersOfElementwiseAxesAreAlignedAtTheRight) {
  const auto x = RelationType::parse("f64[6,4]<1,1>"), v = RelationType::parse("f64[4]<1>");
  const auto letters = letters_of({"add", {}}, {{x, {0, 1}}, {v, {1}}});
  ASSERT_TRUE(letters.has_value());
  EXPECT_EQ(letters->operands, (std::vector<std::string>{"ab", "b"}));
  EXPECT_EQ(letters->result, "ab");
}

TEST(DimModes, VisitsSingleDimensionsKeyByKey) {
  std::vector<Box> visited;
  for_each_single({{1, 0, 2}, {3, 4, 4}}, {DimMode::kSingle, DimMode::kWhole, DimMode::kSingle},
                  [&](const Box& box) { visited.push_back(box); });
  EXPECT_EQ(visited,
            (std::vector<Box>{
                {{1, 0, 2}, {2, 4, 3}}, {{1, 0, 3}, {2, 4, 4}}, {{2, 0, 2}, {3, 4, 3}}, {{2, 0, 3}, {3, 4, 4}}}));
}

TEST(DimModes, VisitsBoxesWithoutSingleDimensionsOnceAndEmptyOnesNever) {
  int visits = 0;
  for_each_single({{0, 1}, {5, 2}}, {DimMode::kWhole, DimMode::kBatch}, [&](const Box&) { ++visits; });
  EXPECT_EQ(visits, 1);
  for_each_single({{0, 1}, {0, 2}}, {DimMode::kSingle, DimMode::kBatch}, [&](const Box&) { ++visits; });
  EXPECT_EQ(visits, 1);
}

TEST(DimModes, ListsDimensionsOfAModeAndPrintsModes) {
  const std::vector<DimMode> modes{DimMode::kBatch, DimMode::kSingle, DimMode::kBatch, DimMode::kWhole};
  EXPECT_EQ(dims_in(modes, DimMode::kBatch), (Dims{0, 2}));
  EXPECT_EQ(modes_text(modes), "[batch, single, batch, whole]");
  EXPECT_EQ(projected({{1, 2, 3}, {4, 5, 6}}, {2, 0}), (Box{{3, 1}, {6, 4}}));
}

TEST(DimModes, BatchAxesAreDroppedOrderedAndInserted) {
  // Key dimensions 0 and 1 have leading axes; dimension 2 counts the parts of the only array axis.
  const auto type = RelationType::parse("f64[6@2]<2,3,2>");
  const storage::Layout layout(type);
  const at::Tensor array = at::arange(36).reshape({2, 3, 6});
  const BatchAxes reordered(layout, {3, 1, 2}, {DimMode::kBatch, DimMode::kBatch, DimMode::kWhole, DimMode::kBatch},
                            {1, 0, 3});
  EXPECT_TRUE(at::equal(reordered.apply(array), array.permute({1, 0, 2}).unsqueeze(1)));
  const BatchAxes dropped(layout, {0, 1, 2}, {DimMode::kSingle, DimMode::kBatch, DimMode::kWhole}, {1});
  const at::Tensor one = array.narrow(0, 1, 1);
  EXPECT_TRUE(at::equal(dropped.apply(one), array[1]));
  EXPECT_TRUE(at::equal(dropped.without_singles(one), array[1]));
}

TEST(DimModes, ResultsGetTheLeadingAxesOfTheirLayout) {
  const auto type = RelationType::parse("f64[6@2]<2,3,2>");
  const Dims missing = missing_axes({1}, storage::Layout(type));
  EXPECT_EQ(missing, (Dims{0}));
  EXPECT_EQ(with_axes(at::ones({3, 6}), missing).sizes(), at::IntArrayRef({1, 3, 6}));
}

}  // namespace
}  // namespace joinsum::runtime::execution::local

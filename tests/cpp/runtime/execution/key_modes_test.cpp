#include "runtime/execution/key_modes.h"

#include <gtest/gtest.h>

namespace joinsum::runtime::execution {
namespace {

using relation::RelationType;

TEST(KeyModes, VisitsSingleDimensionsKeyByKey) {
  std::vector<Box> visited;
  for_each_single({{1, 0, 2}, {3, 4, 4}}, {DimMode::kSingle, DimMode::kWhole, DimMode::kSingle},
                  [&](const Box& box) { visited.push_back(box); });
  EXPECT_EQ(visited,
            (std::vector<Box>{
                {{1, 0, 2}, {2, 4, 3}}, {{1, 0, 3}, {2, 4, 4}}, {{2, 0, 2}, {3, 4, 3}}, {{2, 0, 3}, {3, 4, 4}}}));
}

TEST(KeyModes, VisitsBoxesWithoutSingleDimensionsOnceAndEmptyOnesNever) {
  int visits = 0;
  for_each_single({{0, 1}, {5, 2}}, {DimMode::kWhole, DimMode::kBatch}, [&](const Box&) { ++visits; });
  EXPECT_EQ(visits, 1);
  for_each_single({{0, 1}, {0, 2}}, {DimMode::kSingle, DimMode::kBatch}, [&](const Box&) { ++visits; });
  EXPECT_EQ(visits, 1);
}

TEST(KeyModes, ListsDimensionsOfAModeAndPrintsModes) {
  const std::vector<DimMode> modes{DimMode::kBatch, DimMode::kSingle, DimMode::kBatch, DimMode::kWhole};
  EXPECT_EQ(dims_in(modes, DimMode::kBatch), (Dims{0, 2}));
  EXPECT_EQ(modes_text(modes), "[batch, single, batch, whole]");
  EXPECT_EQ(projected({{1, 2, 3}, {4, 5, 6}}, {2, 0}), (Box{{3, 1}, {6, 4}}));
}

TEST(KeyModes, BatchAxesAreDroppedOrderedAndInserted) {
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

TEST(KeyModes, ResultsGetTheLeadingAxesOfTheirLayout) {
  const auto type = RelationType::parse("f64[6@2]<2,3,2>");
  const Dims missing = missing_axes({1}, storage::Layout(type));
  EXPECT_EQ(missing, (Dims{0}));
  EXPECT_EQ(with_axes(at::ones({3, 6}), missing).sizes(), at::IntArrayRef({1, 3, 6}));
}

}  // namespace
}  // namespace joinsum::runtime::execution

#include "relation/relation_type.h"

#include <gtest/gtest.h>

namespace joinsum::relation {
namespace {

using Keys = std::vector<Key>;

RelationType made(const Dims& frontier, const std::vector<Axis>& axes, const Keys& keys) {
  return RelationType::make("test", DType::kFloat32, frontier, axes, std::make_shared<const Keys>(keys));
}

TEST(RelationType, OfATensorIsCutAlongEachAxis) {
  const RelationType type = RelationType::of_tensor(DType::kFloat32, {10, 6}, {4, 2});
  EXPECT_EQ(type.text(), "f32[10,6]<4,2>");
  EXPECT_TRUE(type.regular() && type.unique() && type.continuous());
  EXPECT_EQ(type.tuples(), 8);
  EXPECT_EQ(type.elements(), 60);
  EXPECT_EQ(type.bytes(), 240);
  EXPECT_EQ(type.axes_of(1), (Dims{1}));
}

TEST(RelationType, PrintsAndReadsBackTheSame) {
  for (const char* text : {"f32[10,6]<4,2>", "f64[]<>", "i64[3@-]<5>", "f32[6@0{0,1,6},4]<2,2>",
                           "f32[8]<4> keys{<0>,<0>,<3>}", "bf16[4@1,4@0]<2,2>"}) {
    EXPECT_EQ(RelationType::parse(text).text(true), text);
  }
}

TEST(RelationType, SparseOnesPrintTheirEntriesAndAreEqualWhateverTheseAre) {
  const auto sparse = RelationType::parse("f32[100,50]<4,2> sparse{300}");
  EXPECT_EQ(sparse.text(), "f32[100,50]<4,2> sparse{300}");
  EXPECT_EQ(sparse.entries, 300);
  EXPECT_EQ(sparse, RelationType::parse("f32[100,50]<4,2> sparse{7}"));
  EXPECT_NE(sparse, RelationType::parse("f32[100,50]<4,2>"));
  EXPECT_EQ(sparse.bytes(), 300 * (4 + 2 * 8));
  EXPECT_EQ(sparse.bytes_of(2500), 150 * (4 + 2 * 8));
  EXPECT_EQ(sparse.stored_of(5000), 300);
  EXPECT_EQ(RelationType::parse("f32[100,50]<4,2>").bytes_of(2500), 10000);
  EXPECT_EQ(RelationType::parse("f32[0,50]<1,2> sparse{0}").bytes(), 0);
  EXPECT_THROW(RelationType::parse("f32[4]<2> sparse{-1}"), PlanError);
  EXPECT_THROW(RelationType::parse("f32[4]<2> sparse"), PlanError);
}

TEST(RelationType, KeysAreSortedAndTheFrontierIsTheirBound) {
  const RelationType type = made({4}, {Axis::cut(0, {0, 2, 4, 6, 8})}, {{2}, {0}, {2}});
  EXPECT_EQ(type.text(true), "f32[6]<3> keys{<0>,<2>,<2>}");
  EXPECT_EQ(type.first_duplicate(), Key{2});
  EXPECT_EQ(type.first_hole(), Key{1});
}

TEST(RelationType, AllKeysOnceMakeItRegular) {
  EXPECT_TRUE(made({2}, {Axis::whole(3)}, {{1}, {0}}).regular());
  EXPECT_FALSE(made({2}, {Axis::whole(3)}, {{1}, {0}, {0}}).regular());
}

TEST(RelationType, ArraysOfUnevenCutsHaveNoShapeInCommon) {
  const RelationType type = RelationType::parse("f32[6@0{0,1,6},4]<2,2>");
  EXPECT_EQ(type.array_shape({0, 0}), (Dims{1, 2}));
  EXPECT_EQ(type.array_shape({1, 0}), (Dims{5, 2}));
  EXPECT_EQ(type.uniform_shape(), std::nullopt);
  EXPECT_EQ(type.elements_over(Box::below({2, 1})), 12);
  EXPECT_EQ(RelationType::parse("f32[6,4]<2,2>").uniform_shape(), (Dims{3, 2}));
}

TEST(RelationType, AxesAreFittedToShapesThatAKeyComponentDetermines) {
  const Keys keys{{0, 0}, {0, 1}, {1, 0}, {1, 1}};
  const auto fitted = fit_axes("test", {2, 2}, keys, {{1, 3}, {5, 3}, {1, 3}, {5, 3}}, {0, Axis::kUnlinked});
  EXPECT_EQ(fitted, (std::vector<Axis>{Axis::cut(1, {0, 1, 6}), Axis::whole(3)}));
  EXPECT_THROW(fit_axes("test", {2, 2}, keys, {{1}, {5}, {5}, {1}}, {0}), PlanError);
}

}  // namespace
}  // namespace joinsum::relation

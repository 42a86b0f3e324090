#include "relation/typing_samples.h"

namespace joinsum::relation {
namespace {

std::string aggregated(const std::string& input, const Dims& keep, const std::string& by) {
  return aggregate_type("test", relation(input), keep, kernel(by)).text(true);
}

std::string error(const std::string& input, const Dims& keep, const std::string& by) {
  return error_of([&] { aggregated(input, keep, by); });
}

TEST(AggregateTyping, GroupsAreTheKeptKeysInTheirOrder) {
  EXPECT_EQ(aggregated("f32[8,6]<4,2>", {0}, "add"), "f32[8@0,3]<4>");
  EXPECT_EQ(aggregated("f32[8,6]<4,2>", {1, 0}, "add"), "f32[8@1,6@0]<2,4>");
  EXPECT_EQ(aggregated("f32[8,6]<4,2>", {}, "max | exp"), "f32[2,3]<>");
}

TEST(AggregateTyping, GroupsOfAnIrregularRelationAreThoseThatHaveTuples) {
  EXPECT_EQ(aggregated("f32[4,4]<2,2> keys{<0,0>,<1,0>,<1,1>}", {1}, "add"), "f32[2,4@0]<2>");
  EXPECT_EQ(aggregated("f32[8]<4> keys{<0>,<0>,<3>}", {0}, "add"), "f32[4@0{0,2,2,2,4}]<4> keys{<0>,<3>}");
}

TEST(AggregateTyping, ConcatGrowsTheAxis) {
  EXPECT_EQ(aggregated("f32[10,6]<4,2>", {0}, "concat[1]"), "f32[10@0,6]<4>");
  EXPECT_EQ(aggregated("f32[10@-,6]<4>", {}, "concat[0]"), "f32[40,6]<>");
}

TEST(AggregateTyping, AnAggregationKeepsShapeAndDtypeAndDependsOnNoOrder) {
  EXPECT_NE(error("f32[2@-,3@-]<2>", {}, "matmul").find("extents of a letter differ"), std::string::npos);
  EXPECT_NE(error("f32[8@0{0,1,8}]<2>", {}, "add").find("arrays of one group differ in shape"), std::string::npos);
  EXPECT_NE(error("f32[3@-]<1> keys{<0>,<0>}", {0}, "sub").find("the result depends on the order of equal keys"),
            std::string::npos);
}

TEST(AggregateTyping, ConcatNeedsOneWholeDroppedDimension) {
  EXPECT_NE(error("f32[4,4]<2,2>", {}, "concat[0]").find("concat keeps all key dimensions but one"), std::string::npos);
  EXPECT_NE(error("f32[4,4]<2,2> keys{<0,0>,<1,0>,<1,1>}", {0}, "concat[1]").find("concat over a hole"),
            std::string::npos);
  EXPECT_NE(error("f32[3@-]<1> keys{<0>,<0>}", {}, "concat[0]").find("concat over a key that occurs twice"),
            std::string::npos);
}

}  // namespace
}  // namespace joinsum::relation

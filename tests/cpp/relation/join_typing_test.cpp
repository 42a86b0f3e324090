#include "relation/typing_samples.h"

namespace joinsum::relation {
namespace {

std::string joined(const std::string& left, const std::string& right, const JoinKeys& on, const std::string& by) {
  return join_type("test", relation(left), relation(right), on, kernel(by)).text(true);
}

TEST(JoinTyping, ResultKeysAreTheLeftOnesThenTheRightOnesThatAreNotJoined) {
  const JoinKeys on{{1}, {0}};
  EXPECT_EQ(on.left_position(2), (Dims{0, 1}));
  EXPECT_EQ(on.right_position(2, 2), (Dims{1, 2}));
  EXPECT_EQ(joined("f32[10,6]<4,2>", "f32[6,8]<2,3>", on, "matmul"), "f32[10@0,8@2]<4,2,3>");
}

TEST(JoinTyping, KeysOfPairsAndBoxesAreJoined) {
  const JoinKeys on{{1}, {0}};
  EXPECT_EQ(on.joined({3, 5}, {5, 7}), (Key{3, 5, 7}));
  EXPECT_EQ(on.joined(Box{{0, 1}, {2, 4}}, Box{{2, 0}, {6, 3}}), (Box{{0, 2, 0}, {2, 4, 3}}));
  EXPECT_TRUE(on.joined(Box{{0, 1}, {2, 2}}, Box{{4, 0}, {6, 3}}).empty());
}

TEST(JoinTyping, TheFrontierOfAJoinedKeyIsTheSmallerOne) {
  EXPECT_EQ(joined("f32[8]<4>", "f32[4]<2>", {{0}, {0}}, "add"), "f32[4]<2>");
}

TEST(JoinTyping, KeysOfIrregularRelationsAreThosePairsThatMeet) {
  EXPECT_EQ(joined("f32[8]<4> keys{<0>,<0>,<3>}", "f32[8]<4> keys{<0>,<2>}", {{0}, {0}}, "add"),
            "f32[2]<1> keys{<0>,<0>}");
}

TEST(JoinTyping, AKernelWithOnlyAShapeRuleIsTypedTupleByTuple) {
  EXPECT_EQ(joined("f32[2@-]<2>", "f32[3@-]<2>", {{0}, {0}}, "concat[0]"), "f32[5@-]<2>");
}

TEST(JoinTyping, KernelsThatFollowTypeTheResult) {
  EXPECT_EQ(joined("f32[4]<2>", "f32[4]<2>", {{0}, {0}}, "add | cast[i64]"), "i64[4]<2>");
}

TEST(JoinTyping, OperandsThatDoNotFitAreRefused) {
  const auto error = [](const std::string& left, const std::string& right, const JoinKeys& on, const char* by) {
    return error_of([&] { joined(left, right, on, by); });
  };
  EXPECT_EQ(error("f32[4]<2>", "f32[4]<2>", {{0}, {}}, "add"), "test: key lists differ in length: left=[0], right=[]");
  EXPECT_EQ(error("f32[4]<2>", "f32[4]<2>", {{0}, {0}}, "exp"),
            "test: kernel has the wrong number of operands: kernel=exp, operands=1, wanted=2");
  EXPECT_NE(error("f32[6@0{0,1,6}]<2>", "f32[6]<2>", {{0}, {0}}, "add").find("cut at different points"),
            std::string::npos);
}

}  // namespace
}  // namespace joinsum::relation

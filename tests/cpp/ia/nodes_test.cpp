#include "ia/nodes.h"

#include <gtest/gtest.h>

namespace joinsum::ia {
namespace {

const Grid kGrid{{2, 2}};
const Dims kFrontier{4, 4};

Placement placement_of(const std::string& text) {
  Scanner scanner(text);
  return Placement::parse(scanner, kGrid, kFrontier);
}

std::optional<Dims> axes(const std::string& from, const std::string& to) {
  return broadcast_axes(placement_of(from), placement_of(to));
}

TEST(Moves, ABroadcastGathersTheAxesThatBecomeReplicated) {
  EXPECT_EQ(axes("(0, 1)", "(*, 1)"), Dims{0});
  EXPECT_EQ(axes("(0, 1)", "(*, *)"), (Dims{0, 1}));
  EXPECT_EQ(axes("(+add, 1)", "(*, 1)"), Dims{0});
}

TEST(Moves, NoBroadcastSplitsAnAxisByAnotherDimension) {
  EXPECT_EQ(axes("(0, 1)", "(1, *)"), std::nullopt);
  EXPECT_EQ(axes("(*, *)", "(0, *)"), std::nullopt);
}

TEST(Moves, OfTwoAxesThatSplitOneDimensionTheFasterIsGatheredFirst) {
  EXPECT_EQ(axes("(0, 0)", "(0, *)"), Dims{1});
  EXPECT_EQ(axes("(0, 0)", "(*, 0)"), std::nullopt);
}

TEST(Moves, MoveToIsNothingABroadcastOrAShuffle) {
  const auto relation = relation::RelationType::parse("f32[8, 8]<4, 4>");
  const NodePtr input = make_input("X", PhysicalType::placed("test", relation, kGrid, placement_of("(0, 1)")));
  EXPECT_EQ(move_to(input, placement_of("(0, 1)")), input);
  const NodePtr gathered = move_to(input, placement_of("(*, 1)"));
  ASSERT_NE(gathered->as<Broadcast>(), nullptr);
  EXPECT_EQ(gathered->as<Broadcast>()->axes, Dims{0});
  const NodePtr shuffled = move_to(input, placement_of("(1, 0)"));
  ASSERT_NE(shuffled->as<Shuffle>(), nullptr);
  EXPECT_EQ(shuffled->type().placement, placement_of("(1, 0)"));
}

}  // namespace
}  // namespace joinsum::ia

#include "optimizer/layouts/layouts.h"

#include <gtest/gtest.h>

#include "optimizer/layouts/move_prices.h"

namespace joinsum::optimizer::layouts {
namespace {

const ia::Grid kGrid{{2, 2}};

relation::RelationType relation_type(const std::string& text) { return relation::RelationType::parse(text); }

ia::Placement split(std::vector<int64_t> dims, const Dims& frontier) {
  ia::GridPlacement out;
  for (const int64_t dim : dims) out.states.emplace_back(ia::Split{dim, frontier[dim]});
  return out;
}

TEST(Layouts, EqualRelationTypesHaveOneNumber) {
  Layouts layouts(kGrid);
  const size_t x = layouts.number(relation_type("f32[8]<4>"));
  EXPECT_EQ(layouts.number(relation_type("f32[8]<4>")), x);
  EXPECT_NE(layouts.number(relation_type("f64[8]<4>")), x);
}

TEST(Layouts, SparseTypesOfOtherNumbersOfEntriesHaveOthers) {
  Layouts layouts(kGrid);
  const auto few = relation_type("f32[80]<4> sparse{10}"), many = relation_type("f32[80]<4> sparse{60}");
  const size_t x = layouts.number(few), y = layouts.number(many);
  EXPECT_NE(x, y);
  EXPECT_EQ(layouts.number(many), y);
  EXPECT_EQ(layouts.replicated(y)->type.relation.entries, 60);
  // A value whose entries are estimated in two ways may still be moved.
  const cost::Cluster cluster;
  MovePrices prices(cost::Objective::kWireBytes, cluster);
  const Layout* divided = layouts.placed(x, ia::Placement(ia::GridPlacement{{ia::Split{0, 4}, ia::Replicated{}}}));
  EXPECT_GT(prices(*divided, *layouts.replicated(y)), 0);
}

TEST(Layouts, OneRelationAndOneReducedPlacementAreOneLayout) {
  Layouts layouts(kGrid);
  const auto type = relation_type("f32[8, 8]<4, 4>");
  const size_t x = layouts.number(type);
  const ia::Placement placement = split({0, 1}, {4, 4});
  const Layout* found = layouts.find(x, placement);
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(layouts.find(x, placement), found);
  EXPECT_EQ(layouts.placed(x, placement), found);
  EXPECT_EQ(layouts.of(ia::PhysicalType::placed("test", type, kGrid, placement)), found);
  EXPECT_NE(layouts.find(x, split({1, 0}, {4, 4})), found);
}

TEST(Layouts, EqualPlacementsOfTwoRelationsHaveOnePlacementNumber) {
  Layouts layouts(kGrid);
  const Layout* x = layouts.replicated(layouts.number(relation_type("f32[8]<4>")));
  const Layout* y = layouts.replicated(layouts.number(relation_type("f32[6]<3>")));
  EXPECT_NE(x, y);
  EXPECT_EQ(x->placement, y->placement);
  EXPECT_NE(x->relation, y->relation);
}

TEST(Layouts, APlacementThatARelationCannotHaveIsNoLayout) {
  Layouts layouts(kGrid);
  const size_t x = layouts.number(relation_type("f32[8]<4>"));
  ia::GridPlacement of_no_such_dimension;
  of_no_such_dimension.states = {ia::Split{1, 4}, ia::Replicated{}};
  EXPECT_EQ(layouts.find(x, of_no_such_dimension), nullptr);
  EXPECT_THROW(layouts.placed(x, of_no_such_dimension), PlanError);
}

}  // namespace
}  // namespace joinsum::optimizer::layouts

#include "ia/type.h"

#include <gtest/gtest.h>

namespace joinsum::ia {
namespace {

PhysicalType typed(const std::string& relation, const std::string& grid, const std::string& placement) {
  Scanner grid_text(grid), placement_text(placement);
  const relation::RelationType type = relation::RelationType::parse(relation);
  const Grid sites = Grid::parse(grid_text);
  return PhysicalType::placed("test", type, sites, Placement::parse(placement_text, sites, type.frontier));
}

TEST(PhysicalType, SitesHoldTheKeysThatThePlacementGivesThem) {
  const PhysicalType type = typed("f32[8,4]<4,2>", "2x2", "(0, *)");
  EXPECT_TRUE(type.holding.regular());
  EXPECT_EQ(type.sites(), 4);
  for (int64_t site = 0; site < 4; ++site) {
    EXPECT_EQ(type.holding.tuples(site), 4) << site;
    EXPECT_EQ(type.bytes(site), 16 * 4) << site;
  }
  EXPECT_EQ(type.holding.sites_of({0, 1}), (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(type.holding.sites_of({3, 0}), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(type.parts(), (Dims{2, 1}));
}

TEST(PhysicalType, ASiteBeyondTheKeysHoldsNothing) {
  const PhysicalType type = typed("f32[3]<3>", "4", "(0)");
  int64_t empty = 0;
  for (int64_t site = 0; site < 4; ++site) empty += type.holding.empty(site) ? 1 : 0;
  EXPECT_EQ(empty, 1);
}

TEST(PhysicalType, IrregularRelationsAreHeldAsListsOfKeys) {
  const PhysicalType type = typed("f32[8]<4> keys{<0>,<0>,<3>}", "2", "(0)");
  EXPECT_FALSE(type.holding.regular());
  EXPECT_EQ(*type.holding.keys(0), (std::vector<Key>{{0}, {0}}));
  EXPECT_EQ(type.holding.elements(type.relation, 0), 4);
  EXPECT_EQ(type.stored(0).size(), 2);
}

TEST(PhysicalType, ABoxIsStoredWholeUnlessTwoAxesAreCutByOneDimension) {
  EXPECT_EQ(typed("f32[8,4]<4,2>", "2", "(0)").stored(0).size(), 1);
  EXPECT_EQ(typed("f32[8@0,8@0]<4>", "2", "(0)").stored(0).size(), 2);
}

TEST(PhysicalType, PrintsRelationGridAndPlacement) {
  EXPECT_EQ(typed("f32[8,4]<4,2>", "2x2", "(0, *)").text(), "f32[8,4]<4,2> on 2x2 (0, *)");
}

TEST(PhysicalType, RefusesPlacementsThatDoNotFit) {
  const auto error_of = [](const GridPlacement& placement) -> std::string {
    try {
      PhysicalType::placed("test", relation::RelationType::parse("f32[8]<4>"), Grid{{2, 2}}, Placement{placement});
    } catch (const PlanError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(error_of({{Replicated{}, Replicated{}}}), "no error");
  EXPECT_NE(error_of({{Replicated{}}}).find("a placement has one state per grid axis"), std::string::npos);
  EXPECT_NE(error_of({{Split{1, 4}, Replicated{}}}).find("split by a key dimension that is not there"),
            std::string::npos);
  EXPECT_NE(error_of({{Split{0, 3}, Replicated{}}}).find("split domain below the frontier"), std::string::npos);
  EXPECT_NE(error_of({{Split{0, 4}, Split{0, 5}}}).find("one key dimension split on two domains"), std::string::npos);
}

}  // namespace
}  // namespace joinsum::ia

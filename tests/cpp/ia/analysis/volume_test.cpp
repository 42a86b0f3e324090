#include "ia/analysis/volume.h"

#include <gtest/gtest.h>

#include "ia/analysis/exchange.h"

namespace joinsum::ia::analysis {
namespace {

PhysicalType typed(const std::string& relation, const std::string& grid, const std::string& placement) {
  Scanner grid_text(grid), placement_text(placement);
  const relation::RelationType type = relation::RelationType::parse(relation);
  const Grid sites = Grid::parse(grid_text);
  const Placement states = Placement::parse(placement_text, sites, type.frontier);
  if (!states.pending()) return PhysicalType::placed("test", type, sites, states);
  // Every site holds a partial of all that it would hold, were the pending axes replicated.
  std::vector<std::optional<Box>> boxes;
  for (int64_t site = 0; site < sites.sites(); ++site) boxes.push_back(states.box(sites, site, type.frontier));
  return {type, sites, states, Holding::of_boxes(std::move(boxes))};
}

Volume moved(const std::string& grid, const std::string& from, const std::string& to) {
  return volume(typed("f32[8,4]<4,2>", grid, from), typed("f32[8,4]<4,2>", grid, to));
}

TEST(Volume, OfAnEqualPlacementIsNothing) {
  EXPECT_EQ(moved("4", "(0)", "(0)").elements(), 0);
  EXPECT_EQ(moved("4", "(0)", "(0)").stages, 0);
}

TEST(Volume, OfReplicationIsTheRestForEverySite) {
  const Volume gathered = moved("4", "(0)", "(*)");
  EXPECT_EQ(gathered.copy, 4 * 24);
  EXPECT_EQ(gathered.busiest, 24);
  EXPECT_EQ(gathered.stages, 1);
}

TEST(Volume, OfDroppingReplicasIsNothing) { EXPECT_EQ(moved("2x2", "(0, *)", "(0, 1)").elements(), 0); }

TEST(Volume, OfAnotherDimensionIsWhatDoesNotOverlap) {
  // Each of 2 sites holds 16 elements, of which 8 stay.
  const Volume turned = moved("2", "(0)", "(1)");
  EXPECT_EQ(turned.copy, 2 * 8);
  EXPECT_EQ(turned.busiest, 8);
}

TEST(Volume, OfPartialsCountsReducingApartFromGathering) {
  const Volume scattered = moved("4", "(+add)", "(0)");
  EXPECT_EQ(scattered.reduce, 3 * 32);
  EXPECT_EQ(scattered.gather, 0);
  const Volume everywhere = moved("4", "(+add)", "(*)");
  EXPECT_EQ(everywhere.reduce, 3 * 32);
  EXPECT_EQ(everywhere.gather, 3 * 32);
  EXPECT_EQ(everywhere.stages, 2);
}

TEST(Volume, OfIrregularRelationsIsThatOfTheirMessages) {
  const std::string holes = "f32[8,4]<4,2> keys{<0,0>,<1,1>,<3,0>}";
  const PhysicalType from = typed(holes, "2", "(0)"), to = typed(holes, "2", "(*)");
  EXPECT_EQ(volume(from, to).elements(), exchange(from, to).elements());
}

}  // namespace
}  // namespace joinsum::ia::analysis

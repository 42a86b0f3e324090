#include "optimizer/cost/objective.h"

#include <set>

#include <gtest/gtest.h>

#include "ia/nodes.h"
#include "random_plans.h"

namespace joinsum::optimizer::cost {
namespace {

using testing::RandomPlans;

TEST(Objectives, EachRowHasAllThatPlannersAsk) {
  std::set<std::string> names;
  for (size_t i = 0; i < objectives().size(); ++i) {
    const ObjectiveRow& row = objectives()[i];
    EXPECT_EQ(static_cast<size_t>(row.objective), i) << "rows follow the enumeration: " << row.name;
    EXPECT_TRUE(names.insert(row.name).second) << "two rows have one name: " << row.name;
    EXPECT_FALSE(row.unit.empty()) << row.name;
    EXPECT_FALSE(row.description.empty()) << row.name;
    ASSERT_NE(row.value, nullptr) << row.name;
    ASSERT_NE(row.move_price, nullptr) << row.name;
    EXPECT_EQ(objective_named(row.name), row.objective);
    EXPECT_EQ(name_of(row.objective), row.name);
  }
}

TEST(Objectives, AnUnknownNameIsAnErrorThatListsThem) {
  try {
    objective_named("joules");
    FAIL();
  } catch (const PlanError& error) {
    const std::string message = error.what();
    for (const ObjectiveRow& row : objectives()) EXPECT_NE(message.find(row.name), std::string::npos) << message;
  }
}

/// On few sites, where seconds are those of the listed messages.
TEST(Objectives, PriceAMoveAsTheNodeThatItBecomes) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    RandomPlans random(seed);
    const ia::Grid grid = ia::Grid::of_sites(1 + static_cast<int64_t>(seed % 6));
    const auto relation = relation::RelationType::parse("f32[8, 12]<4, 6>");
    const auto from = ia::PhysicalType::placed("test", relation, grid, random.placement(relation, grid));
    const auto to = ia::PhysicalType::placed("test", relation, grid, random.placement(relation, grid));
    if (from.placement == to.placement || to.placement.grid() == nullptr) continue;
    const auto move = ia::move_to(ia::make_input("R", from), to.placement);
    const NodeCost cost = node_cost(*move, Fusion::kNone, {});
    for (const ObjectiveRow& row : objectives()) {
      EXPECT_DOUBLE_EQ(row.move_price(from, move->type(), {}), value_of(cost, row.objective))
          << row.name << ", seed " << seed << ", move " << move->type().text();
    }
  }
}

TEST(Objectives, ASafeBoundNeverExceedsTheValueThatItRoundsTo) {
  for (const ObjectiveRow& row : objectives()) {
    EXPECT_LE(safe_bound(100.0, 100.0, row.objective), 100.0) << row.name;
    EXPECT_GE(safe_bound(0.0, 0.0, row.objective), 0.0) << row.name;
    EXPECT_EQ(safe_bound(99.7, 100.0, row.objective) == 100.0, row.whole_numbers) << row.name;
  }
}

}  // namespace
}  // namespace joinsum::optimizer::cost

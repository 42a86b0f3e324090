#include "optimizer/cost/profile.h"

#include <cmath>

#include <gtest/gtest.h>

#include "optimizer/cost/priced_plans.h"
#include "random_plans.h"
#include "tra/lower.h"

namespace joinsum::optimizer::cost {
namespace {

using testing::RandomPlans;

TEST(Curve, IsLinearBetweenPointsFlatBelowAndAlongItsLastPieceBeyond) {
  const Curve curve("c", {10, 20, 40}, {1, 2, 6});
  EXPECT_DOUBLE_EQ(curve.at(0), 1);
  EXPECT_DOUBLE_EQ(curve.at(15), 1.5);
  EXPECT_DOUBLE_EQ(curve.at(30), 4);
  EXPECT_DOUBLE_EQ(curve.at(60), 10);
  EXPECT_DOUBLE_EQ(Curve("c", {7}, {3}).at(100), 3);
}

TEST(Curve, ThatFallsOrIsOutOfOrderIsAnError) {
  EXPECT_THROW(Curve("c", {1, 2}, {2, 1}), PlanError);
  EXPECT_THROW(Curve("c", {2, 1}, {1, 2}), PlanError);
  EXPECT_THROW(Curve("c", {}, {}), PlanError);
  EXPECT_THROW(Curve("c", {1}, {std::numeric_limits<double>::quiet_NaN()}), PlanError);
}

TEST(Products, InterpolatePowersAndGrowBeyondTheTable) {
  std::vector<double> seconds;
  for (const double rows : {1, 4})
    for (const double inner : {1, 4})
      for (const double columns : {1, 4}) seconds.push_back(rows * inner * inner * columns);
  const ProductProfile table(DType::kFloat32, {1, 4}, seconds);
  EXPECT_NEAR(table.at(2, 2, 3), 2 * 4 * 3, 1e-9);
  EXPECT_NEAR(table.at(4, 4, 8), 4 * 16 * 8, 1e-9) << "twice the last column";
  EXPECT_THROW(ProductProfile(DType::kFloat32, {1, 4}, {1, 2}), PlanError);
}

TEST(Profile, PricesAMoveByItsStageItsCopiesAndItsReductions) {
  const std::string one = "ia on 2\ninput A: f32[8]<2> (0)\noutput Z = broadcast(A)\n";
  EXPECT_DOUBLE_EQ(seconds_of(one, "t0"), (64 + 8 * 16) + 0.125 * 32) << "each site is sent 16 bytes and stores 32";
  const std::string away = "ia on 2\ninput A: f32[6,4]<2,2> (0)\noutput Z = shuffle[1](A)\n";
  EXPECT_DOUBLE_EQ(seconds_of(away, "t0"), (64 + 8 * 24) + 0.125 * (24 + 48))
      << "columns are cut out, and put together";
  const std::string reduction = std::string(kPartials) + "output Z = shuffle[0](P)\n";
  EXPECT_DOUBLE_EQ(seconds_of(reduction, "t1"), (64 + 8 * 4800) + 2 * 1200) << "one reduction of 1200 elements";
}

TEST(Profile, PricesAStageBetweenOnePairAndAllByHowBusySitesAre) {
  // One tuple: site 0 sends it, and nobody else sends anything.
  const std::string text = "ia on 2\ninput A: f32[8]<1> (0)\noutput Z = broadcast(A)\n";
  EXPECT_DOUBLE_EQ(seconds_of(text, "t0"), 32 + 4 * 32);
}

TEST(Profile, PricesKernelsByTheFactsOfTheirRows) {
  const std::string vector = "ia on 2\ninput A: f32[10]<2> (0)\n";
  EXPECT_DOUBLE_EQ(seconds_of(vector + "output Z = map[(k0); relu](A)\n", "t0"), 5);
  EXPECT_DOUBLE_EQ(seconds_of(vector + "output Z = join[0; 0; add](A, A)\n", "t0"), 2 * 5);
  const std::string matrix = "ia on 2\ninput A: f32[4,6]<2,1> (0)\n";
  EXPECT_DOUBLE_EQ(seconds_of(matrix + "output Z = map[(k0, k1); row_sum](A)\n", "t0"), 0.5 * 12);
  EXPECT_DOUBLE_EQ(seconds_of(matrix + "output Z = map[(k1, k0); transpose](A)\n", "t0"), 0) << "a view";
  const std::string tuples = "ia on 2\ninput A: f32[8@-]<2,5> (0)\noutput Z = agg[0; add](A)\n";
  EXPECT_DOUBLE_EQ(seconds_of(tuples, "t0"), 0.25 * 40) << "five tuples of one block";
  const std::string two = "ia on 2\ninput A: f32[8]<2> (0)\ninput B: f32[8]<2> (0)\n";
  EXPECT_DOUBLE_EQ(seconds_of(two + "output Z = upsert(A, B)\n", "t0"), 0.125 * 16) << "a site's result is written";
}

TEST(Profile, PricesAProductWhereItsSumIsComputed) {
  const char* text = R"(ia on 2
input A: f32[4,2]<2,1> (0)
input B: f32[2,2]<1,1> (*)
output Z = agg[0, 2; add](join[1; 0; matmul](A, B))
)";
  const PlanCost cost = cost_of(text, measured());
  EXPECT_EQ(node_named(cost, "t0").seconds, 0);
  EXPECT_NEAR(node_named(cost, "t1").seconds, 1032, 1e-9);
  EXPECT_NEAR(cost.seconds, 4096 + 1032, 1e-9);
  EXPECT_EQ(cost.run_seconds, 4096);
}

TEST(Profile, PricesOtherPairsAsTwoProducts) {
  const auto seconds = [](const std::string& kernel) {
    return seconds_of(
        "ia on 2\ninput A: f32[4,2]<2,1> (0)\ninput B: f32[2,2]<1,1> (*)\n"
        "output Z = agg[0, 2; min](join[1; 0; " +
            kernel + "](A, B))\n",
        "t1");
  };
  EXPECT_NEAR(seconds("contract_add_min[ij,jk->ik]"), 2 * 8, 1e-9);
  // An expression has no tiles: each of the 8 joined elements is computed, and read again.
  EXPECT_NEAR(seconds("expression_min[ij,jk->ik:x0+x1]"), 2 * 8 + 0.5 * 8, 1e-9);
}

TEST(Profile, TakesTheSmallestSetOfAxesThatHasAllThatAreCrossed) {
  Profile profile;
  profile.links = {{{0, 1, 2}, line(3, 0), {}}, {{1, 2}, line(2, 0), {}}, {{1}, line(1, 0), {}}};
  EXPECT_EQ(profile.link({1})->all.at(0), 1);
  EXPECT_EQ(profile.link({2})->all.at(0), 2);
  EXPECT_EQ(profile.link({0})->all.at(0), 3);
  EXPECT_EQ(profile.link({3}), nullptr);
}

TEST(Profile, PricesEveryRandomPlan) {
  const Cluster cluster = measured();
  for (uint64_t seed = 0; seed < 400; ++seed) {
    RandomPlans random(seed);
    const tra::Plan logical = random.plan();
    const ia::Grid grid = random.grid(6);
    const ia::Plan plan = tra::lower(logical, grid, random.placements(logical, grid));
    const PlanCost priced = plan_cost(plan, cluster);
    EXPECT_EQ(priced.wire_bytes, plan_cost(plan).wire_bytes);
    for (const NodeCost& node : priced.nodes) EXPECT_TRUE(std::isfinite(node.seconds) && node.seconds >= 0) << seed;
  }
}

}  // namespace
}  // namespace joinsum::optimizer::cost

#include "tra/lower.h"

#include <set>

#include <gtest/gtest.h>

#include "ia/interpret.h"
#include "ia/text.h"
#include "random_plans.h"
#include "tra/text.h"

namespace joinsum::tra {
namespace {

/// Operators of the lowered plan, as nested text without types: `local_filter[k0 == 0](X)`.
std::string nested(const ia::NodePtr& node) {
  std::string out = ia::operation_text(node->operation(), node->type());
  for (size_t i = 0; i < node->inputs().size(); ++i) out += (i > 0 ? ", " : "(") + nested(node->input(i));
  return node->inputs().empty() ? out : out + ")";
}

std::string lowered(const std::string& expression, const std::string& placement = "(0, 1)") {
  const Plan plan = parse("tra\ninput X: f32[4,4]<2,2>\noutput Z = " + expression);
  const ia::Grid grid = ia::Grid::of_sites(4);
  Scanner scanner(placement);
  const ia::Placement at = ia::Placement::parse(scanner, grid, {2, 2});
  return nested(lower(plan, grid, {{"X", at}}).outputs()[0].node);
}

TEST(Lower, AggregateBecomesALocalOneOverAShuffleToItsGroups) {
  EXPECT_EQ(lowered("aggregate[1; add](X)"), "local_aggregate[1; add](shuffle[(1, 1)](X))");
}

TEST(Lower, AggregateOverNoGroupsBecomesALocalOneOverABroadcast) {
  EXPECT_EQ(lowered("aggregate[; add](X)"), "local_aggregate[; add](broadcast[0, 1](X))");
}

TEST(Lower, JoinBroadcastsItsLeftOperand) {
  EXPECT_EQ(lowered("join[1; 0; matmul](X, X)"), "local_join[1; 0; matmul](broadcast[0, 1](X), X)");
}

TEST(Lower, RekeyTransformAndTileBecomeMaps) {
  EXPECT_EQ(lowered("rekey[(k1, k0)](X)"), "local_map[(k1, k0); id](X)");
  EXPECT_EQ(lowered("transform[relu](X)"), "local_map[(k0, k1); relu](X)");
  EXPECT_EQ(lowered("tile[0, 1](X)"), "local_map[2: (k0, k1, m); tile[0, 1]](X)");
}

TEST(Lower, UpsertMovesItsOperandsToOnePlacement) {
  EXPECT_EQ(lowered("upsert(X, X)"), "local_upsert(X, X)");
  EXPECT_EQ(lowered("upsert(rekey[(k1, k0)](X), X)"), "local_upsert(local_map[(k1, k0); id](X), shuffle[(1, 0)](X))");
  EXPECT_EQ(lowered("upsert(rekey[(k1, k0 // 2)](X), X)"),
            "local_upsert(shuffle[(0, 1:2)](local_map[(k1, k0 // 2); id](X)), X)");
}

TEST(Lower, FilterBecomesALocalOne) { EXPECT_EQ(lowered("filter[k0 == k1](X)"), "local_filter[k0 == k1](X)"); }

TEST(Lower, ConcatBecomesALocalAggregateOverAShuffleToTheOtherKeys) {
  EXPECT_EQ(lowered("concat[0, 0](X)"), "local_aggregate[1; concat[0]](shuffle[(1, 1)](X))");
}

TEST(Lower, ConcatOfTheOnlyKeyBecomesALocalAggregateOverABroadcast) {
  EXPECT_EQ(lowered("concat[0, 0](concat[1, 1](X))"),
            "local_aggregate[; concat[0]](broadcast[0, 1](local_aggregate[0; concat[1]](shuffle[(0, 0)](X))))");
}

TEST(Lower, RekeyThatDropsASplitOfAPartlyReplicatedRelationSplitsItFirst) {
  EXPECT_EQ(lowered("rekey[(k0 // 2, k1)](X)", "(0, *)"), "local_map[(k0 // 2, k1); id](shuffle[(0, 1)](X))");
  EXPECT_EQ(lowered("rekey[(k0 // 2, k1)](X)", "(1, *)"), "local_map[(k0 // 2, k1); id](X)");
  EXPECT_EQ(lowered("rekey[(k0 // 2, k1)](X)", "(*, *)"), "local_map[(k0 // 2, k1); id](X)");
  EXPECT_EQ(lowered("rekey[(k0 // 2, k1)](X)", "(0, 0)"), "local_map[(k0 // 2, k1); id](X)");
}

TEST(Lower, InputsWithoutAPlacementAreSplitByTheirKeyDimensionsInOrder) {
  const Plan plan = parse("tra\ninput X: f32[4,4]<2,2>\ninput Y: f32[3]<>\noutput Z = X\noutput V = Y");
  const ia::Plan physical = lower(plan, ia::Grid::of_sites(8));
  EXPECT_EQ(physical.inputs()[0]->type().text(), "f32[4,4]<2,2> on 2x2x2 (0, 1, 0)");
  EXPECT_EQ(physical.inputs()[1]->type().text(), "f32[3]<> on 2x2x2 (*, *, *)");
}

TEST(Lower, APlacementThatDoesNotFitIsAnError) {
  const Plan plan = parse("tra\ninput X: f32[4,4]<2,2>\noutput Z = X");
  EXPECT_THROW(lower(plan, ia::Grid::of_sites(2), {{"X", ia::GridPlacement{{ia::Split{2, 2}}}}}), PlanError);
  EXPECT_THROW(lower(plan, ia::Grid::of_sites(2), {{"X", ia::Scattered{}}}), PlanError);
  EXPECT_THROW(lower(plan, ia::Grid::of_sites(2), {{"X", ia::GridPlacement{{ia::Pending{"add"}}}}}), PlanError);
}

TEST(Lower, OutputsEndWhereTheirPlacementsSay) {
  const Plan plan = parse("tra\ninput X: f32[4,4]<2,2>\noutput Y = rekey[(k1, k0)](X)\noutput Z = X");
  const ia::Grid grid = ia::Grid::of_sites(4);
  const ia::Placement rows = ia::fill(grid, {0}, {2, 2});
  const ia::Plan physical = lower(plan, grid, {}, {{"Y", rows}, {"Z", ia::Placement::replicated(grid)}});
  EXPECT_EQ(nested(physical.outputs()[0].node), "shuffle[(0, 0)](local_map[(k1, k0); id](X))");
  EXPECT_EQ(nested(physical.outputs()[1].node), "broadcast[0, 1](X)");
  EXPECT_THROW(lower(plan, ia::Grid::of_sites(2), {}, {{"Y", rows}}), PlanError);
}

TEST(Lower, TiedOutputsEndWhereTheirInputsLie) {
  const Plan plan = parse("tra\ninput X: f32[4,4]<2,2>\noutput X -> X = rekey[(k0, k1)](aggregate[0, 1; add](X))");
  const auto output_of = [&](const std::string& placement) {
    Scanner scanner(placement);
    const ia::Grid grid = ia::Grid::of_sites(4);
    const ia::Plan physical = lower(plan, grid, {{"X", ia::Placement::parse(scanner, grid, {2, 2})}});
    EXPECT_EQ(physical.outputs()[0].tied_input, "X");
    return nested(physical.outputs()[0].node);
  };
  const std::string result = "local_map[(k0, k1); id](local_aggregate[0, 1; add](shuffle[(0, 1)](X)))";
  EXPECT_EQ(output_of("(0, 1)"), result);
  EXPECT_EQ(output_of("(1, *)"), "shuffle[(1, *)](" + result + ")");
  EXPECT_EQ(output_of("(*, *)"), "broadcast[0, 1](" + result + ")");
}

TEST(Lower, SharedNodesStayShared) {
  const Plan plan = parse(
      "tra\ninput X: f32[4,4]<2,2>\na = transform[relu](X)\noutput Z = join[0, 1; 0, 1; add](a, a)\noutput V = a");
  const ia::Plan physical = lower(plan, ia::Grid::of_sites(4));
  EXPECT_EQ(physical.order().size(), 4U) << physical.text();
  EXPECT_EQ(physical.outputs()[0].node->input(1), physical.outputs()[1].node);
}

/// One plan, its inputs, and its translation to sites.
struct Case {
  Plan plan;
  std::map<std::string, Relation> inputs;
  ia::Plan physical;

  explicit Case(uint64_t seed) {
    testing::RandomPlans random(seed);
    plan = random.plan();
    inputs = random.relations(plan);
    const ia::Grid grid = random.grid();
    physical = lower(plan, grid, random.placements(plan, grid));
  }
};

TEST(Lower, KeepsTheContentsOfRandomPlansFromRandomPlacements) {
  std::set<size_t> operators;
  int64_t scattered = 0;
  for (uint64_t seed = 1000; seed < 1700; ++seed) {
    const Case drawn(seed);
    const auto logical = interpret(drawn.plan, drawn.inputs);
    const auto physical = ia::interpret(drawn.physical, drawn.inputs);
    for (const auto& output : drawn.physical.outputs()) {
      const auto contents = ia::contents(physical.at(output.name), output.node->type());
      ASSERT_EQ(contents, logical.at(output.name)) << "seed " << seed << "\n" << drawn.physical.text();
    }
    for (const auto& node : drawn.physical.order()) {
      operators.insert(node->operation().index());
      scattered += node->type().placement.scattered() != nullptr ? 1 : 0;
    }
  }
  EXPECT_EQ(operators.size(), 8U);
  EXPECT_GT(scattered, 20);
}

TEST(Lower, RandomPhysicalPlansPrintAndParse) {
  for (uint64_t seed = 1000; seed < 1700; ++seed) {
    const ia::Plan plan = Case(seed).physical;
    const std::string text = ia::print(plan);
    ASSERT_NO_THROW(EXPECT_TRUE(ia::parse(text) == plan) << text) << text;
    EXPECT_EQ(ia::print(ia::parse(text)), text);
  }
}

}  // namespace
}  // namespace joinsum::tra

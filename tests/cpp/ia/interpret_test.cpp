#include "ia/interpret.h"

#include <gtest/gtest.h>

#include "ia/text.h"
#include "random_plans.h"

namespace joinsum::ia {
namespace {

using kernels::reference::Array;

Array vector(std::vector<double> values) { return {{static_cast<int64_t>(values.size())}, std::move(values)}; }

/// Tuples <i> with the one value i + 1.
Contents counted(int64_t tuples) {
  Contents out;
  for (int64_t i = 0; i < tuples; ++i) out.emplace_back(Key{i}, vector({static_cast<double>(i + 1)}));
  return out;
}

struct Result {
  Relation relation;
  PhysicalType type;

  /// Keys and values of each site: `0: <0>=1 <1>=2; 1: `.
  std::string text() const {
    std::string out;
    for (int64_t site = 0; site < type.sites(); ++site) {
      out += concatenate(site > 0 ? "; " : "", site, ":");
      for (const Tuple& tuple : relation) {
        if (tuple.site == site) out += concatenate(" ", key_text(tuple.key), "=", tuple.array.values.at(0));
      }
    }
    return out;
  }
};

Result run(const std::string& text, const std::map<std::string, Contents>& inputs) {
  const Plan plan = parse(text);
  return {interpret(plan, inputs).at("Z"), plan.outputs()[0].node->type()};
}

/// X has four tuples with the values 1 to 4, on a grid of 2 x 2 sites.
Result run_on_four(const std::string& placement, const std::string& expression) {
  return run("ia on 2x2\ninput X: f32[4]<4> " + placement + "\noutput Z = " + expression, {{"X", counted(4)}});
}

TEST(PhysicalInterpret, PlacesTuplesBySplitAxesAndRepeatsThemAlongReplicatedOnes) {
  EXPECT_EQ(run_on_four("(0, 0)", "X").text(), "0: <0>=1; 1: <1>=2; 2: <2>=3; 3: <3>=4");
  EXPECT_EQ(run_on_four("(0, *)", "X").text(), "0: <0>=1 <1>=2; 1: <0>=1 <1>=2; 2: <2>=3 <3>=4; 3: <2>=3 <3>=4");
  EXPECT_EQ(run_on_four("(*, 0)", "X").text(), "0: <0>=1 <1>=2; 1: <2>=3 <3>=4; 2: <0>=1 <1>=2; 3: <2>=3 <3>=4");
}

TEST(PhysicalInterpret, BroadcastGivesEachSiteWhatItsAxisHolds) {
  EXPECT_EQ(run_on_four("(0, 0)", "broadcast[1](X)").text(),
            "0: <0>=1 <1>=2; 1: <0>=1 <1>=2; 2: <2>=3 <3>=4; 3: <2>=3 <3>=4");
  EXPECT_EQ(run_on_four("(0, *)", "broadcast(X)").text(),
            "0: <0>=1 <1>=2 <2>=3 <3>=4; 1: <0>=1 <1>=2 <2>=3 <3>=4; 2: <0>=1 <1>=2 <2>=3 <3>=4; "
            "3: <0>=1 <1>=2 <2>=3 <3>=4");
}

TEST(PhysicalInterpret, BroadcastOfTheSlowerOfTwoAxesThatSplitOneDimensionIsAnError) {
  EXPECT_EQ(run_on_four("(0, 0)", "broadcast[1](X)").type.text(), "f32[4]<4> on 2x2 (0, *)");
  EXPECT_THROW(run_on_four("(0, 0)", "broadcast[0](X)"), PlanError);
  EXPECT_EQ(run_on_four("(0, *)", "broadcast[0](X)").type.text(), "f32[4]<4> on 2x2 (*, *)");
}

TEST(PhysicalInterpret, ShuffleMovesTuplesToTheirOwners) {
  EXPECT_EQ(run_on_four("(0, *)", "shuffle[(*, 0)](X)").text(),
            "0: <0>=1 <1>=2; 1: <2>=3 <3>=4; 2: <0>=1 <1>=2; 3: <2>=3 <3>=4");
}

TEST(PhysicalInterpret, AggregatesOverSplitKeysLeavePartials) {
  const Result partial = run_on_four("(0, *)", "agg[; add](X)");
  EXPECT_EQ(partial.text(), "0: <>=3; 1: <>=3; 2: <>=7; 3: <>=7");
  EXPECT_EQ(partial.type.text(), "f32[1]<> on 2x2 (+add, *)");
  EXPECT_EQ(contents(partial.relation, partial.type), (Contents{{{}, vector({10})}}));
}

TEST(PhysicalInterpret, EqualPartialsAreBothCounted) {
  const Result sum = run("ia on 2\ninput X: f32[2]<2> (0)\noutput Z = broadcast(agg[; add](X))",
                         {{"X", {{{0}, vector({5})}, {{1}, vector({5})}}}});
  EXPECT_EQ(sum.text(), "0: <>=10; 1: <>=10");
}

TEST(PhysicalInterpret, BroadcastSettlesThePendingAxesThatItNames) {
  EXPECT_EQ(run_on_four("(0, 0)", "broadcast[1](agg[; add](X))").text(), "0: <>=3; 1: <>=3; 2: <>=7; 3: <>=7");
  EXPECT_EQ(run_on_four("(0, 0)", "broadcast[0](agg[; add](X))").text(), "0: <>=4; 1: <>=6; 2: <>=4; 3: <>=6");
  EXPECT_EQ(run_on_four("(0, 0)", "broadcast(agg[; add](X))").text(), "0: <>=10; 1: <>=10; 2: <>=10; 3: <>=10");
}

TEST(PhysicalInterpret, ShuffleSettlesThePendingAxesThatItsTargetDoesNotKeep) {
  const std::string head = "ia on 2x2\ninput X: f32[4@-]<4,2> (1, 0)\noutput Z = ";
  Contents given;
  for (int64_t i = 0; i < 8; ++i) given.emplace_back(Key{i / 2, i % 2}, Array{{4}, std::vector<double>(4, i + 1.0)});
  EXPECT_EQ(run(head + "agg[0; add](X)", {{"X", given}}).text(),
            "0: <0>=1 <1>=3; 1: <2>=5 <3>=7; 2: <0>=2 <1>=4; 3: <2>=6 <3>=8");
  EXPECT_EQ(run(head + "shuffle[(0, 0)](agg[0; add](X))", {{"X", given}}).text(),
            "0: <0>=3; 1: <1>=7; 2: <2>=11; 3: <3>=15");
  EXPECT_EQ(run(head + "shuffle[(+add, *)](agg[0; add](X))", {{"X", given}}).text(),
            "0: <0>=1 <1>=3 <2>=5 <3>=7; 1: <0>=1 <1>=3 <2>=5 <3>=7; 2: <0>=2 <1>=4 <2>=6 <3>=8; "
            "3: <0>=2 <1>=4 <2>=6 <3>=8");
}

TEST(PhysicalInterpret, ASiteWithoutTuplesHoldsNoPartial) {
  const Result sum = run("ia on 3\ninput X: f32[2]<2> (0)\noutput Z = agg[; max](X)",
                         {{"X", {{{0}, vector({-5})}, {{1}, vector({-7})}}}});
  EXPECT_EQ(sum.text(), "0: <>=-5; 1: <>=-7; 2:");
  EXPECT_EQ(contents(sum.relation, sum.type), (Contents{{{}, vector({-5})}}));
}

TEST(PhysicalInterpret, JoinsMeetOnOneSite) {
  EXPECT_EQ(run_on_four("(0, *)", "join[0; 0; mul](X, X)").text(),
            "0: <0>=1 <1>=4; 1: <0>=1 <1>=4; 2: <2>=9 <3>=16; 3: <2>=9 <3>=16");
  EXPECT_EQ(run_on_four("(0, *)", "broadcast(join[0; 0; mul](agg[0; add](X), X))").text(),
            "0: <0>=1 <1>=4 <2>=9 <3>=16; 1: <0>=1 <1>=4 <2>=9 <3>=16; 2: <0>=1 <1>=4 <2>=9 <3>=16; "
            "3: <0>=1 <1>=4 <2>=9 <3>=16");
}

TEST(PhysicalInterpret, APendingOperandJoinsAReplicatedOne) {
  const Result product = run_on_four("(0, *)", "join[; ; mul](agg[; add](X), shuffle[(*, 0)](X))");
  EXPECT_EQ(product.type.text(), "f32[4]<4> on 2x2 (+add, 0)");
  EXPECT_EQ(product.text(), "0: <0>=3 <1>=6; 1: <2>=9 <3>=12; 2: <0>=7 <1>=14; 3: <2>=21 <3>=28");
  EXPECT_EQ(contents(product.relation, product.type),
            (Contents{{{0}, vector({10})}, {{1}, vector({20})}, {{2}, vector({30})}, {{3}, vector({40})}}));
}

/// Σ a + Σ b = Σ (a + b), and alike for differences and extremes, on any sites that hold partial values of both.
TEST(PhysicalInterpret, PartialValuesOfBothOperandsJoinIntoPartialValues) {
  int64_t pending = 0;
  for (uint64_t seed = 0; seed < 600; ++seed) {
    testing::RandomPlans random(seed);
    const Grid grid = random.grid(8);
    const relation::RelationType type =
        RelationType::parse(concatenate("f32[2]<", random.between(1, 4), ",", random.between(1, 4), ">"));
    const std::string kernel = random.one_of<std::string>({"add", "sub", "max", "min"});
    const std::string reduction = kernel == "sub" ? "add" : kernel;
    const Dims kept = random.chance(70) ? Dims{random.between(0, 1)} : Dims{};
    std::map<std::string, Contents> inputs{{"A", random.relation(type)}, {"B", random.relation(type)}};
    const Placement at = random.placement(type, grid);
    const NodePtr a = make_input("A", PhysicalType::placed("test", type, grid, at));
    const NodePtr b = make_input("B", PhysicalType::placed("test", type, grid, at));
    const auto sum = [&](const NodePtr& of) { return make(LocalAggregate{kept, {reduction, {}}}, {of}); };
    const Dims keys = all_dims(static_cast<int64_t>(kept.size()));
    const LocalJoin join{keys, keys, {kernel, {}}};
    const NodePtr joined = make(join, {sum(a), sum(b)});
    const NodePtr wanted = make(join, {sum(broadcast(a)), sum(broadcast(b))});
    pending += joined->type().placement.pending() ? 1 : 0;
    const Plan plan = Plan::make({{"Z", joined, std::nullopt}, {"W", wanted, std::nullopt}});
    const auto results = interpret(plan, inputs);
    ASSERT_EQ(contents(results.at("Z"), joined->type()), contents(results.at("W"), wanted->type()))
        << "seed " << seed << "\n"
        << plan.text();
  }
  EXPECT_GT(pending, 200);
}

TEST(PhysicalInterpret, KeyMapsLeaveTuplesWhereTheyAre) {
  const Result mapped = run_on_four("(0, 0)", "map[(3 - k0); id](X)");
  EXPECT_EQ(mapped.text(), "0: <3>=1; 1: <2>=2; 2: <1>=3; 3: <0>=4");
  EXPECT_NE(mapped.type.placement.scattered(), nullptr);
  EXPECT_EQ(contents(mapped.relation, mapped.type),
            (Contents{{{0}, vector({4})}, {{1}, vector({3})}, {{2}, vector({2})}, {{3}, vector({1})}}));
}

TEST(PhysicalInterpret, FilteredRelationsStayInPlace) {
  EXPECT_EQ(run_on_four("(0, 0)", "filter[k0 < 2](X)").text(), "0: <0>=1; 1: <1>=2; 2:; 3:");
}

TEST(PhysicalInterpret, RandomMovesBetweenOperatorsKeepTheContents) {
  int64_t pending = 0;
  for (uint64_t seed = 3000; seed < 3700; ++seed) {
    testing::RandomPlans random(seed);
    const tra::Plan logical = random.plan();
    const auto inputs = random.relations(logical);
    const auto expected = tra::interpret(logical, inputs);
    const Plan physical = random.physical(logical, random.grid(8));
    const auto results = interpret(physical, inputs);
    for (const auto& output : physical.outputs()) {
      ASSERT_EQ(contents(results.at(output.name), output.node->type()), expected.at(output.name))
          << "seed " << seed << "\n"
          << physical.text();
    }
    for (const auto& node : physical.order()) pending += node->type().placement.pending() ? 1 : 0;
  }
  EXPECT_GT(pending, 50);
}

TEST(PhysicalInterpret, InputsAreGivenAndFitTheirTypes) {
  const Plan plan = parse("ia on 2\ninput X: f32[2]<2> (0)\noutput Z = X");
  EXPECT_THROW(interpret(plan, {}), PlanError);
  EXPECT_THROW(interpret(plan, {{"X", counted(1)}}), PlanError);
  EXPECT_THROW(interpret(plan, {{"X", counted(3)}}), PlanError);
  EXPECT_THROW(interpret(plan, {{"X", {{{0}, vector({1})}, {{1}, vector({1, 2})}}}}), PlanError);
}

}  // namespace
}  // namespace joinsum::ia

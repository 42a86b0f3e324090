// Rules of the TRA paper's Table 2 that are wrong or too wide as printed: each printed form, built by hand, fails on a
// small counterexample, where joinsum's rule does not fire or gives the right plan.

#include <numeric>
#include <set>

#include <gtest/gtest.h>

#include "ia/interpret.h"
#include "ia/text.h"
#include "optimizer/rules/rewrite.h"

namespace joinsum::optimizer::rules {
namespace {

/// On 2 sites: matrices of 2 x 2 numbers, lying by rows (R) and by columns (C); vectors of 4 numbers, split and whole.
constexpr const char* kInputs = R"(ia on 2
input R: f64[2,2]<2,2> (0)
input C: f64[2,2]<2,2> (1)
input U: f64[4]<4> (0)
input V: f64[4]<4> (0)
input W: f64[4]<4> (*)
)";

ia::Plan plan(const std::string& expression) { return ia::parse(kInputs + ("output Z = " + expression + "\n")); }

const ia::NodePtr& output(const ia::Plan& plan) { return plan.outputs()[0].node; }

/// A relation of one number for each key, in key order.
ia::Contents numbers(const Dims& frontier, const std::vector<double>& values) {
  ia::Contents out;
  for (const Key& key : keys_of(Box::below(frontier))) {
    out.emplace_back(key, kernels::reference::Array{Dims(frontier.size(), 1), {values[out.size()]}});
  }
  return out;
}

std::map<std::string, ia::Contents> inputs() {
  return {{"R", numbers({2, 2}, {1, 2, 3, 4})},
          {"C", numbers({2, 2}, {1, 1, 5, 7})},
          {"U", numbers({4}, {-3, 1, 1, 5})},
          {"V", numbers({4}, {2, 3, 5, 7})},
          {"W", numbers({4}, {2, 3, 5, 7})}};
}

ia::Relation tuples(const ia::Plan& plan) { return ia::interpret(plan, inputs()).at("Z"); }

/// Values of the result in key order.
std::vector<double> values(const ia::Plan& plan) {
  std::vector<double> out;
  for (const auto& [key, array] : ia::contents(tuples(plan), output(plan)->type())) {
    out.insert(out.end(), array.values.begin(), array.values.end());
  }
  return out;
}

std::vector<double> values(const std::string& expression) { return values(plan(expression)); }

bool fires(const std::string& rule, const std::string& expression) {
  return !apply(rule_named(rule), output(plan(expression))).empty();
}

/// Values of what `rule` makes of the last operator of `expression`.
std::vector<double> rewritten(const std::string& rule, const std::string& expression) {
  const auto made = apply(rule_named(rule), output(plan(expression)));
  EXPECT_EQ(made.size(), 1U) << rule;
  return values(ia::Plan::make({{"Z", made.at(0), std::nullopt}}));
}

using Values = std::vector<double>;

TEST(PrintedRules, R1_4ComposesTheMapIntoThePairwiseAggregation) {
  // relu of -3 + 1 + 1; as printed the aggregation's step is relu(a + b), run twice.
  const std::string map = "map[(); relu](agg[; add](filter[k0 < 3](broadcast(U))))";
  const std::string printed =
      "join[; ; add | relu](agg[; add | relu](filter[k0 < 2](broadcast(U))), agg[; add](filter[k0 == "
      "2](broadcast(U))))";
  EXPECT_EQ(values(map), Values{0});
  EXPECT_EQ(values(printed), Values{1});
  EXPECT_EQ(rewritten("R1-4a", map), values(map));
}

TEST(PrintedRules, R1_5AppliesThePredicateToTheInputsKeys) {
  const std::string filtered = "filter[k0 == 1](agg[1; add](R))";
  EXPECT_EQ(values(filtered), Values{6});
  EXPECT_EQ(values("agg[1; add](filter[k0 == 1](R))"), (Values{3, 4}));
  EXPECT_EQ(rewritten("R1-5a", filtered), values(filtered));
}

TEST(PrintedRules, R1_6AppliesThePredicateToBothOperandsAlike) {
  const std::string filtered = "filter[k1 == 1](join[1; 0; mul](R, broadcast(R)))";
  EXPECT_EQ(values(filtered), (Values{6, 8, 12, 16}));
  EXPECT_EQ(values("join[1; 0; mul](filter[k1 == 1](R), filter[k1 == 1](broadcast(R)))"), (Values{8, 16}));
  EXPECT_EQ(rewritten("R1-6", filtered), values(filtered));
}

TEST(PrintedRules, R1_7MovesAKeyMapIntoTheJoinKeysThatIsNotInjective) {
  // Keys 0 and 1 become 0, and so the tuple 0 of one side meets the tuple 1 of the other.
  const std::string mapped = "map[(k0 // 2); negate](join[0; 0; mul](U, V))";
  EXPECT_EQ(values(mapped), (Values{-3, 6, -35, -5}));
  const ia::Plan printed =
      plan("join[0; 0; mul | negate](broadcast(map[(k0 // 2); id](broadcast(U))), map[(k0 // 2); id](W))");
  EXPECT_EQ(values(printed).size(), 8U);
  EXPECT_EQ(rewritten("R1-7", mapped), values(mapped));
}

TEST(PrintedRules, R2_1KeepsTheLastBroadcastThoughItHasFewerAxes) {
  // The paper broadcasts to all sites; along grid axes the last one alone leaves operands apart.
  const std::string head = "ia on 2x2\ninput A: f64[4]<4> (0, 0)\ninput B: f64[4]<4> (0, 0)\n";
  const auto joined = [&](const std::string& left) {
    return ia::parse(head + "output Z = join[; ; mul](" + left + ", B)\n");
  };
  EXPECT_NO_THROW(joined("broadcast[0](broadcast[1](A))"));
  EXPECT_THROW(joined("broadcast[1](A)"), PlanError);
  const ia::Plan both = ia::parse(head + "output Z = broadcast[0](broadcast[1](A))\n");
  const auto made = apply(rule_named("R2-1c"), output(both));
  ASSERT_EQ(made.size(), 1U);
  EXPECT_EQ(made[0]->type(), output(both)->type());
}

/// Sums of the tuples that each site holds: what the paper's local aggregation leaves where groups are spread.
std::multiset<double> partials(const std::string& expression) {
  std::multiset<double> out;
  for (const ia::Tuple& tuple : tuples(plan(expression))) {
    if (tuple.key == Key{0}) out.insert(tuple.array.values[0]);
  }
  return out;
}

TEST(PrintedRules, R2_4OmitsAShuffleThatBringsGroupsTogether) {
  const std::string sums = "agg[0; add](shuffle[0](C))";
  EXPECT_EQ(values(sums), (Values{2, 12}));
  EXPECT_TRUE(output(plan("agg[0; add](C)"))->type().placement.pending());
  EXPECT_EQ(partials("agg[0; add](C)"), (std::multiset<double>{1, 1}));
  EXPECT_THROW(plan("agg[0; sub](C)"), PlanError);
  EXPECT_FALSE(fires("R2-4", sums));
  EXPECT_FALSE(fires("R2-4", "agg[0; sub](shuffle[0](C))"));
}

TEST(PrintedRules, R2_5SplitsTheAggregationWhereTheShuffleNamesMoreThanTheGroups) {
  // g = {0} is within p = {0, 1}: after the inner aggregation there is no dimension 1 to shuffle by.
  const std::string head = "ia on 2x2\ninput A: f64[2,2]<2,2> (1, 1)\n";
  const ia::Plan spread = ia::parse(head + "output Z = shuffle[0](agg[0; add](shuffle[0, 1](A)))\n");
  EXPECT_THROW(ia::parse(head + "output Z = agg[0; add](shuffle[0, 1](agg[0; add](A)))\n"), PlanError);
  EXPECT_TRUE(apply(rule_named("R2-5"), output(spread)->input(0)).empty());
  const std::string within = "agg[1; add](shuffle[1](R))";
  EXPECT_EQ(rewritten("R2-5", within), values(within));
}

TEST(PrintedRules, R2_5AggregatesPartialsThatASetWouldLose) {
  // Both sites hold the partial 1 of key <0>; without sites they are one tuple of a set.
  const auto bag = partials("agg[0; add](C)");
  const std::set<double> set(bag.begin(), bag.end());
  EXPECT_EQ(std::accumulate(bag.begin(), bag.end(), 0.0), 2);
  EXPECT_EQ(std::accumulate(set.begin(), set.end(), 0.0), 1);
  EXPECT_EQ(rewritten("R2-5", "agg[0; add](shuffle[0](C))"), (Values{2, 12}));
}

TEST(PrintedRules, R2_6ShufflesBySetsThatDoNotMeetPairByPair) {
  // The sets of key dimensions are equal; as lists, (0, 1) against (1, 0), tuples of one key lie on different sites.
  const std::string head = "ia on 2x2\ninput A: f64[2,2]<2,2> (0, 1)\ninput B: f64[2,2]<2,2> (1, 0)\n";
  const std::string join = "output Z = join[0, 1; 0, 1; mul]";
  EXPECT_THROW(ia::parse(head + join + "(shuffle[0, 1](A), shuffle[1, 0](B))\n"), PlanError);
  const ia::Plan one = ia::parse(head + join + "(broadcast(A), B)\n");
  const auto made = apply(rule_named("R2-6c"), output(one));
  ASSERT_EQ(made.size(), 1U);
  EXPECT_EQ(made[0]->input(0)->as<ia::Shuffle>()->target, made[0]->input(1)->as<ia::Shuffle>()->target);
}

TEST(PrintedRules, R2_7OmitsAShuffleThatBringsTuplesTogether) {
  // p = {0} is within jl = {0, 1}: the join leaves row 0 on two sites, and an aggregation over rows would see parts of
  // them.
  const std::string head = "ia on 2x2\ninput A: f64[2,2]<2,2> (0, 1)\n";
  const std::string join = "join[0, 1; 0, 1; mul](shuffle[0, 1](A), shuffle[0, 1](A))";
  const ia::Plan kept = ia::parse(head + "output Z = agg[0; sub](shuffle[0](" + join + "))\n");
  EXPECT_THROW(ia::parse(head + "output Z = agg[0; sub](" + join + ")\n"), PlanError);
  EXPECT_TRUE(apply(rule_named("R2-7"), output(kept)->input(0)).empty());
  // The other way round, jl = {1} within p = {0, 1}, the join alone keeps them together.
  const ia::Plan within = ia::parse(head + "output Z = shuffle[0, 1](join[1; 0; mul](shuffle[1](A), shuffle[0](A)))\n");
  EXPECT_EQ(apply(rule_named("R2-7"), output(within)), std::vector<ia::NodePtr>{output(within)->input(0)});
}

}  // namespace
}  // namespace joinsum::optimizer::rules

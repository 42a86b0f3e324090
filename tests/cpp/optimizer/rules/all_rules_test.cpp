#include <algorithm>
#include <optional>
#include <set>

#include <gtest/gtest.h>

#include "ia/text.h"
#include "optimizer/rules/families.h"
#include "optimizer/rules/rewrite.h"

namespace joinsum::optimizer::rules {
namespace {

using Texts = std::vector<std::string>;

/// Matrices in 4 x 4 blocks on 2 x 2 sites: X and Y lie by blocks, R by rows, C by columns, W everywhere; V is a
/// vector.
constexpr const char* kMatrices = R"(ia on 2x2
input X: f32[8,8]<4,4> (0, 1)
input Y: f32[8,8]<4,4> (0, 1)
input R: f32[8,8]<4,4> (0, 0)
input C: f32[8,8]<4,4> (1, 1)
input W: f32[8,8]<4,4> (*, *)
input V: f32[8]<4> (*, *)
)";

ia::Plan plan_of(const std::string& expression) { return ia::parse(kMatrices + ("output Z = " + expression + "\n")); }

/// What a rule makes of the last operator of `expression`, as plan texts.
Texts rewritten_texts(const std::string& rule, const std::string& expression) {
  Texts out;
  for (const ia::NodePtr& node : apply(rule_named(rule), plan_of(expression).outputs()[0].node)) {
    out.push_back(ia::Plan::make({{"Z", node, std::nullopt}}).text());
  }
  return out;
}

struct Row {
  std::string rule;
  std::string fires;
  Texts gives;
  std::string does_not_fire;
};

// clang-format off
const std::vector<Row>& rows() {
  static const std::vector<Row> table{
      // One operator over another.
      {"R1-1", "filter[k0 == 0](filter[k1 == 1](X))",
               {"filter[k1 == 1 and k0 == 0](X)"},
               "filter[k0 == 0](map[(k0, k1); relu](X))"},
      {"R1-2", "map[(k0); diag](map[(k1, k0); relu](W))",
               {"map[(k1); relu | diag](W)"},
               "map[(k0, k1, k2); relu](map[2: (k0, k1, m); duplicate](X))"},
      {"R1-3a", "filter[k0 == k1](map[(k0, k1); relu](X))",
                {"map[(k0, k1); relu](filter[k0 == k1](X))"},
                "filter[k0 < k1](map[(k1, k0); relu](X))"},
      {"R1-3b", "map[(k0, k1); relu](filter[k0 == k1](X))",
                {"filter[k0 == k1](map[(k0, k1); relu](X))"},
                "map[(k1, k0); relu](filter[k0 < k1](X))"},
      {"R1-4a", "map[(k0); relu](agg[0; add](R))",
                {"agg[0; add | relu](R)"},
                "map[(k0); scale[2]](agg[0; add](C))"},
      {"R1-4b", "map[(k0); scale[2]](agg[0; add](R))",
                {"agg[0; add](map[(k0, k1); scale[2]](R))"},
                "map[(k0); relu](agg[0; add](R))"},
      {"R1-5a", "filter[k0 == 1](agg[1; add](X))",
                {"agg[1; add](filter[k1 == 1](X))"},
                "filter[k0 == 1](map[(k1, k0); relu](X))"},
      {"R1-5b", "agg[1; add](filter[k1 == 1](X))",
                {"filter[k0 == 1](agg[1; add](X))"},
                "agg[1; add](filter[k0 == 1](X))"},
      {"R1-6", "filter[k1 == 1](join[1; 0; matmul](C, R))",
               {"join[1; 0; matmul](filter[k1 == 1](C), filter[k0 == 1](R))"},
               "filter[k0 == 1](join[1; 0; matmul](C, R))"},
      {"R1-7", "map[(k0, k1); relu](join[0, 1; 0, 1; add](X, Y))",
               {"join[0, 1; 0, 1; add | relu](X, Y)"},
               "map[(k1, k0); id](join[0, 1; 0, 1; add](X, Y))"},
      // Moves.
      {"R2-1a", "shuffle[1](broadcast[0](X))",
                {"shuffle[1](X)"},
                "shuffle[0](broadcast(agg[0; add](C)))"},
      {"R2-1b", "broadcast[0](shuffle[0, 1](C))",
                {"shuffle[(*, 1)](C)"},
                "broadcast(shuffle[0](agg[0; add](C)))"},
      {"R2-1c", "broadcast[0](broadcast[1](X))",
                {"broadcast(X)"},
                "broadcast[0](broadcast[1](agg[0; add](C)))"},
      {"R2-2a", "filter[k1 == 1](shuffle[1](X))",
                {"shuffle[(1:4, 1:4)](filter[k1 == 1](X))"},
                "filter[k1 == 1](map[(k0, k1); relu](X))"},
      {"R2-2b", "shuffle[(1:4, 1:4)](filter[k1 == 1](X))",
                {"filter[k1 == 1](shuffle[1](X))"},
                "shuffle[1](filter[k1 == 1](X))"},
      {"R2-3a", "map[(k0, k1); relu](shuffle[1](X))",
                {"shuffle[1](map[(k0, k1); relu](X))"},
                "map[(k1, k0); relu](shuffle[1](X))"},
      {"R2-3b", "shuffle[1](map[(k0, k1); relu](X))",
                {"map[(k0, k1); relu](shuffle[1](X))"},
                "shuffle[1](map[(k1, k0); relu](X))"},
      {"R2-4", "agg[0; add](shuffle[(0, *)](R))",
               {"agg[0; add](R)"},
               "agg[0; add](shuffle[0](C))"},
      {"R2-5", "agg[1; add | relu](shuffle[1](R))",
               {"agg[0; add | relu](shuffle[0](agg[1; add](R)))"},
               "agg[0; add](shuffle[0, 1](C))"},
      {"R2-6a", "join[1; 0; matmul](broadcast(X), R)",
                {"join[1; 0; matmul](X, broadcast(R))"},
                "join[0; 0; mul](broadcast(agg[0; max](C)), agg[0; add](R))"},
      {"R2-6b", "join[1; 0; matmul](X, broadcast(R))",
                {"join[1; 0; matmul](broadcast(X), R)"},
                "join[0; 0; mul](agg[0; add](R), broadcast(agg[0; max](C)))"},
      {"R2-6c", "join[1; 0; matmul](broadcast(X), R)",
                {"join[1; 0; matmul](shuffle[1](X), shuffle[0](R))"},
                "join[; ; contract[ij,kl->il]](broadcast(X), R)"},
      {"R2-6d", "join[1; 0; matmul](X, broadcast(R))",
                {"join[1; 0; matmul](shuffle[1](X), shuffle[0](R))"},
                "join[; ; contract[ij,kl->il]](X, broadcast(R))"},
      {"R2-6e", "join[1; 0; matmul](shuffle[1](X), shuffle[0](Y))",
                {"join[1; 0; matmul](broadcast(X), Y)"},
                "join[0; 0; mul](shuffle[0](agg[0; add](R)), shuffle[0](agg[0; max](C)))"},
      {"R2-6f", "join[1; 0; matmul](shuffle[1](X), shuffle[0](Y))",
                {"join[1; 0; matmul](X, broadcast(Y))"},
                "join[0; 0; mul](shuffle[0](agg[0; max](C)), shuffle[0](agg[0; add](R)))"},
      {"R2-7", "shuffle[0, 1](join[1; 0; matmul](shuffle[1](X), shuffle[0](Y)))",
               {"join[1; 0; matmul](shuffle[1](X), shuffle[0](Y))"},
               "shuffle[0](join[0, 1; 0, 1; mul](shuffle[0, 1](X), shuffle[0, 1](Y)))"},
      // Matrix products.
      {"MM-1a", "agg[0, 2; add](shuffle[0, 2](join[1; 0; matmul](broadcast(X), Y)))",
                {"agg[0, 2; add](join[1; 0; matmul](broadcast(X), shuffle[1](Y)))"},
                "agg[0; add](shuffle[0](join[1; 0; contract[ij,j->i]](broadcast(X), V)))"},
      {"MM-1b", "agg[0, 2; add](shuffle[0, 2](join[1; 0; matmul](broadcast(X), Y)))",
                {"agg[0, 2; add](join[1; 0; matmul](shuffle[0](X), broadcast(Y)))"},
                "agg[1; add](shuffle[1](join[0; 0; contract[j,jk->k]](V, R)))"},
      {"MM-2", "agg[0, 2; add](shuffle[0, 2](join[1; 0; matmul](broadcast(X), Y)))",
               {"agg[0, 2; add](shuffle[0, 2](join[1; 0; matmul](shuffle[1](X), shuffle[0](Y))))"},
               "agg[0, 2; sub](shuffle[0, 2](join[1; 0; matmul](broadcast(X), Y)))"},
      {"MM-3", "agg[0, 2; add](shuffle[0, 2](join[1; 0; matmul](broadcast(X), Y)))",
               {"agg[0, 2; add](join[0, 1, 2; 0, 1, 2; matmul]("
                "shuffle[0, 2](map[4: (k0, k1, m); duplicate](X)), shuffle[0, 2](map[4: (m, k0, k1); duplicate](Y))))"},
               "agg[2, 0; add](shuffle[0, 2](join[1; 0; matmul](broadcast(X), Y)))"},
      // joinsum's own.
      {"P-1", "agg[0; add](join[0, 1; 0, 1; mul | row_sum](X, Y))",
              {"agg[0; add](join[0, 1; 0, 1; contract[ij,ij->i]](X, Y))"},
              "agg[0; max](join[0, 1; 0, 1; mul | row_sum](X, Y))"},
      {"P-2", "agg[0; add](shuffle[0](agg[0; add](C)))",
              {"shuffle[0](agg[0; add](C))"},
              "agg[0; add](shuffle[0](agg[0; max](C)))"},
      {"P-3", "agg[0; add | relu](broadcast(agg[0; add](C)))",
              {"map[(k0); relu](broadcast(agg[0; add](C)))"},
              "agg[0; add](broadcast(agg[0, 1; add](C)))"},
      {"P-4", "agg[0, 1; add | relu](X)",
              {"map[(k0, k1); relu](X)"},
              "agg[1, 0; add](X)"},
      {"P-5", "broadcast(X)",
              {"broadcast[1](broadcast[0](X))", "broadcast[0](broadcast[1](X))"},
              "broadcast[0](X)"},
      {"P-6", "shuffle[1, 0](X)",
              {"shuffle[1, 0](shuffle[1](X))", "shuffle[1, 0](shuffle[0](X))"},
              "shuffle[1](X)"},
      {"P-7a", "map[(k0, k1); cast[f16]](shuffle[1](X))",
               {"shuffle[1](map[(k0, k1); cast[f16]](X))"},
               "map[(k0, k1); cast[f64]](shuffle[1](X))"},
      {"P-7b", "broadcast(map[(k0, k1); cast[f64]](X))",
               {"map[(k0, k1); cast[f64]](broadcast(X))"},
               "broadcast(map[(k0, k1); cast[f16]](X))"},
      {"P-8", "shuffle[0, 1](X)",
              {"X"},
              "shuffle[1, 0](X)"},
      {"P-9", "map[(k0, k1); id](X)",
              {"X"},
              "map[(k1, k0); id](X)"},
  };
  return table;
}
// clang-format on

class RuleTable : public ::testing::TestWithParam<Row> {};

TEST_P(RuleTable, Fires) {
  Texts wanted;
  for (const std::string& expression : GetParam().gives) wanted.push_back(plan_of(expression).text());
  EXPECT_EQ(rewritten_texts(GetParam().rule, GetParam().fires), wanted);
}

TEST_P(RuleTable, DoesNotFire) { EXPECT_EQ(rewritten_texts(GetParam().rule, GetParam().does_not_fire), Texts{}); }

std::string row_name(const ::testing::TestParamInfo<Row>& info) {
  std::string name = info.param.rule;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Rules, RuleTable, ::testing::ValuesIn(rows()), row_name);

TEST(Rules, EachHasARowHereInItsOrder) {
  Texts tested;
  Texts known;
  for (const Row& row : rows()) tested.push_back(row.rule);
  for (const Rule& rule : all_rules()) known.push_back(rule.name);
  EXPECT_EQ(tested, known);
}

TEST(Rules, HaveNamesOfTheirOwnAndSayWhatTheyAre) {
  std::set<std::string> names;
  for (const Rule& rule : all_rules()) {
    EXPECT_TRUE(names.insert(rule.name).second) << rule.name;
    EXPECT_FALSE(rule.law.empty() || rule.when.empty() || rule.source.empty()) << rule.name;
  }
}

TEST(Rules, MatrixProductsAreTheRulesOfTheirPhase) {
  std::vector<std::string> products;
  for (const Rule& rule : matrix_product_rules()) products.push_back(rule.name);
  std::vector<std::string> of_phase;
  for (const Rule& rule : all_rules()) {
    if (rule.phase == Phase::kProducts) of_phase.push_back(rule.name);
    EXPECT_TRUE(rule.normalization == Normalization::kNone || rule.phase == Phase::kRewrite) << rule.name;
  }
  EXPECT_EQ(of_phase, products);
}

TEST(Rules, AnUnknownNameIsAnErrorThatListsThem) {
  try {
    rule_named("R9-9");
    FAIL() << "no error";
  } catch (const PlanError& error) {
    EXPECT_NE(std::string(error.what()).find("rule=R9-9, rules=[R1-1, R1-2"), std::string::npos) << error.what();
  }
}

TEST(Rules, R1_7LeavesTheKeyMapOutside) {
  EXPECT_EQ(rewritten_texts("R1-7", "map[(k1, k0); relu](join[0, 1; 0, 1; add](X, Y))"),
            (Texts{plan_of("map[(k1, k0); id](join[0, 1; 0, 1; add | relu](X, Y))").text()}));
}

TEST(Rules, P_4LeavesOutAnAggregationOfNothing) {
  EXPECT_EQ(rewritten_texts("P-4", "agg[0, 1; add](X)"), (Texts{plan_of("X").text()}));
}

// --- pairs that undo one another -------------------------------------------------------------------------------------

constexpr int64_t kMostPlans = 1000;

/// Number of plans that `rules` reach from `start`, itself among them; nothing if there are more than `kMostPlans`.
std::optional<int64_t> reachable(const ia::Plan& start, const std::vector<const Rule*>& rules) {
  Interner interner;
  std::vector<ia::Plan> plans{interner.intern(start)};
  std::set<const ia::Node*> seen{plans[0].outputs()[0].node.get()};
  for (size_t next = 0; next < plans.size(); ++next) {
    if (plans.size() > kMostPlans) return std::nullopt;
    const ia::Plan from = plans[next];
    for (Rewrite& rewrite : rewrites(from, rules, interner)) {
      if (seen.insert(rewrite.plan.outputs()[0].node.get()).second) plans.push_back(std::move(rewrite.plan));
    }
  }
  return static_cast<int64_t>(plans.size());
}

std::vector<const Rule*> rules_without(const std::set<std::string>& names) {
  std::vector<const Rule*> out;
  for (const Rule& rule : all_rules()) {
    if (!names.contains(rule.name)) out.push_back(&rule);
  }
  return out;
}

TEST(Rules, ReachFinitelyManyPlansWhereNothingIsJoined) {
  EXPECT_EQ(reachable(plan_of("map[(k0, k1); relu](filter[k0 == 1](broadcast(X)))"), rules_without({})), 30);
  EXPECT_EQ(
      reachable(plan_of("agg[1; add](shuffle[1](filter[k1 == 1](map[(k0, k1); scale[2]](X))))"), rules_without({})),
      23);
}

/// P-5 and P-6 make two moves of one, and R2-6 puts moves from one operand to the other: together they have no end.
/// That is why the search is bounded.
TEST(Rules, ReachFinitelyManyPlansOverJoinsUnlessMovesAreSplit) {
  const ia::Plan product = plan_of("agg[0, 2; add](shuffle[0, 2](join[1; 0; matmul](broadcast(X), Y)))");
  EXPECT_EQ(reachable(product, rules_without({"P-5", "P-6"})), 12);
  EXPECT_EQ(reachable(product, rules_without({})), std::nullopt);
}

}  // namespace
}  // namespace joinsum::optimizer::rules

#include "optimizer/rules/search.h"

#include <gtest/gtest.h>

#include "ia/text.h"
#include "optimizer/optimizer.h"
#include "optimizer/paper_programs.h"
#include "random_plans.h"
#include "tra/lower.h"

namespace joinsum::optimizer::rules {
namespace {

constexpr cost::Objective kObjectives[] = {cost::Objective::kPaperFloats, cost::Objective::kWireBytes,
                                           cost::Objective::kSeconds};

/// All but those that make two moves of one.
std::vector<const Rule*> searched_rules() {
  std::vector<const Rule*> out;
  for (const Rule& rule : all_rules()) {
    if (rule.name != "P-5" && rule.name != "P-6") out.push_back(&rule);
  }
  return out;
}

using SearchFunction = Found (*)(const ia::Plan&, const Search&);
constexpr SearchFunction kSearches[] = {greedy, beam, exhaustive};

/// What a search makes of `plan`, from a fresh start.
Found searched(SearchFunction search, const ia::Plan& plan, cost::Objective objective,
               const SearchLimits& limits = {}) {
  Interner interner;
  Pricer pricer(objective, {});
  return search(plan, {searched_rules(), pricer, interner, limits});
}

Score score(const ia::Plan& plan, cost::Objective objective) {
  Interner interner;
  return Pricer(objective, {}).score(interner.intern(plan));
}

/// A product of three matrices, lowered operator by operator.
ia::Plan chain() {
  return tra::lower(tra::parse(R"(tra
input A: f32[8,8]<4,4>
input B: f32[8,8]<4,4>
input C: f32[8,8]<4,4>
output Z = aggregate[0, 2; add](join[1; 0; matmul](aggregate[0, 2; add](join[1; 0; matmul](A, B)), C))
)"),
                    ia::Grid::of_sites(4));
}

std::vector<std::string> rules_of(const Found& found) {
  std::vector<std::string> out;
  for (const Step& step : found.steps) out.push_back(step.rule);
  return out;
}

TEST(Search, NeverMakesAPlanDearer) {
  SearchLimits limits;
  limits.plans = 60;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    testing::RandomPlans random(seed);
    const tra::Plan program = random.plan(6);
    const ia::Grid grid = random.grid(6);
    const ia::Plan plan = tra::lower(program, grid, random.placements(program, grid));
    for (const cost::Objective objective : kObjectives) {
      for (const SearchFunction search : kSearches) {
        const Found found = searched(search, plan, objective, limits);
        ASSERT_FALSE(score(plan, objective) < found.score) << "seed " << seed;
        ASSERT_EQ(score(found.plan, objective), found.score) << "seed " << seed;
      }
    }
  }
}

TEST(Search, FindsTheSameUnderALimitOfPlans) {
  SearchLimits limits;
  limits.plans = 100;
  for (const SearchFunction search : kSearches) {
    const Found one = searched(search, chain(), cost::Objective::kWireBytes, limits);
    const Found other = searched(search, chain(), cost::Objective::kWireBytes, limits);
    EXPECT_EQ(one.plan.text(), other.plan.text());
    EXPECT_EQ(rules_of(one), rules_of(other));
    EXPECT_EQ(one.plans, other.plans);
    EXPECT_LE(one.plans, limits.plans);
  }
}

TEST(Search, SaysWhetherItLeftPlansOut) {
  SearchLimits limits;
  const Found all = searched(exhaustive, chain(), cost::Objective::kWireBytes, limits);
  EXPECT_TRUE(all.complete);
  limits.plans = all.plans;
  EXPECT_TRUE(searched(exhaustive, chain(), cost::Objective::kWireBytes, limits).complete);
  limits.plans = all.plans - 1;
  EXPECT_FALSE(searched(exhaustive, chain(), cost::Objective::kWireBytes, limits).complete);
  limits.plans = 1;
  const Found none = searched(exhaustive, chain(), cost::Objective::kWireBytes, limits);
  EXPECT_EQ(none.plans, 1);
  EXPECT_EQ(none.plan.text(), chain().text());
}

TEST(Search, FollowsNoPlanThatCostsMoreThanItsLimit) {
  SearchLimits limits;
  limits.cost = score(chain(), cost::Objective::kWireBytes).value;
  const Found bounded = searched(exhaustive, chain(), cost::Objective::kWireBytes, limits);
  const Found all = searched(exhaustive, chain(), cost::Objective::kWireBytes);
  EXPECT_FALSE(bounded.complete);
  EXPECT_LT(bounded.plans, all.plans);
  limits.cost = 0;
  EXPECT_EQ(searched(beam, chain(), cost::Objective::kWireBytes, limits).plans, 1);
}

TEST(Search, ReturnsTheBestPlanSoFarAtTheDeadline) {
  SearchLimits limits;
  limits.deadline = std::chrono::steady_clock::now();
  for (const SearchFunction search : kSearches) {
    const Found found = searched(search, chain(), cost::Objective::kWireBytes, limits);
    EXPECT_TRUE(found.out_of_time);
    EXPECT_FALSE(found.complete);
    EXPECT_EQ(found.plan.text(), chain().text());
  }
}

/// A filter goes below an aggregation, which makes nothing better, and then below a move, which does.
TEST(Search, BeamGoesThroughPlansThatAreNoBetter) {
  const ia::Plan plan = ia::parse(R"(ia on 2
input B: f64[7,7,7]<3,4,3> (1)
output Z = filter[k0 > k1](agg[0, 2; concat[1]](shuffle[0](B)))
)");
  const Found kept = searched(greedy, plan, cost::Objective::kWireBytes);
  const Found found = searched(beam, plan, cost::Objective::kWireBytes);
  EXPECT_EQ(kept.score.value, score(plan, cost::Objective::kWireBytes).value);
  EXPECT_LT(found.score.value, kept.score.value);
  EXPECT_EQ(rules_of(found), (std::vector<std::string>{"R1-5a", "R2-2a"}));
}

// --- the direct way --------------------------------------------------------------------------------------------------

/// The optimizer's best plan is at least as cheap as the best of all plans that the rules reach. Seconds are sums of
/// rounded parts.
void expect_at_least_as_cheap(const Optimized& direct, const Found& all, const std::string& about) {
  const Score& best = direct.candidates[0].score;
  const bool cheap = best.undivided < all.score.undivided ||
                     (best.undivided == all.score.undivided && best.value <= all.score.value * (1 + 1e-12));
  EXPECT_TRUE(cheap) << about << all.score.value << all.plan.text() << best.value << direct.candidates[0].plan.text();
}

std::vector<std::string> small_programs() {
  const std::string a = "input A: f32[8,8]<4,4>\n";
  const std::string b = "input B: f32[8,8]<4,4>\n";
  const std::string x = "input X: f32[8,12]<4,4>\n";
  const std::string q = "input Q: f32[12]<4>\n";
  return {
      a + b + "output Z = aggregate[0, 2; add](join[1; 0; matmul](A, B))\n",
      a + b + "output Z = transform[relu](aggregate[0, 2; add](join[1; 1; matmul_nt](A, B)))\n",
      a + b + "input C: f32[8,8]<4,4>\nt = aggregate[0, 2; add](join[1; 0; matmul](A, B))\n" +
          "output Z = aggregate[0, 2; add](join[1; 0; matmul](t, C))\n",
      a + b + "output Z = transform[diag](rekey[(k0)](filter[k0 == k1](join[0, 1; 0, 1; add](A, B))))\n",
      a + b + "output Z = transform[relu](join[0, 1; 0, 1; sub](A, B))\n",
      a + "output Z = transform[relu](aggregate[0; add](A))\n",
      x + q + "output D = transform[relu](join[1; 0; sub](X, Q))\n",
      x + q +
          "input M: f32[12,12]<4,4>\noutput P = aggregate[0, 2; add](join[1; 0; matmul](join[1; 0; sub](X, Q), M))\n",
      x + "input D: f32[8,12]<4,4>\noutput Z = transform[row_sum](aggregate[0; add](join[0, 1; 0, 1; mul](X, D)))\n",
  };
}

TEST(Search, TheDirectWayIsAtLeastAsCheapAsExhaustiveRewritingOfSmallPrograms) {
  for (const std::string& text : small_programs()) {
    const tra::Plan program = tra::parse("tra\n" + text);
    for (const int64_t sites : {2, 4, 6}) {
      const ia::Grid grid = ia::Grid::of_sites(sites);
      for (const int64_t dim : {0, 1}) {
        model::InputPlacements starts;
        for (const auto& input : program.inputs()) {
          const int64_t by = std::min(dim, input->type().arity() - 1);
          starts.emplace(input->as<tra::Input>()->name, ia::fill(grid, {by}, input->type().frontier));
        }
        for (const cost::Objective objective : kObjectives) {
          const Found all = searched(exhaustive, tra::lower(program, grid, starts), objective);
          ASSERT_TRUE(all.complete) << text;
          expect_at_least_as_cheap(optimize(program, grid, starts, testing::minimizing(objective)), all, text);
        }
      }
    }
  }
}

TEST(Search, TheDirectWayIsAtLeastAsCheapAsExhaustiveRewritingOfRandomPrograms) {
  SearchLimits limits;
  limits.plans = 400;
  int64_t finished = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    testing::RandomPlans random(seed);
    const tra::Plan program = random.plan(4);
    const ia::Grid grid = random.grid(6);
    const model::InputPlacements inputs = random.placements(program, grid);
    for (const cost::Objective objective : kObjectives) {
      const Found all = searched(exhaustive, tra::lower(program, grid, inputs), objective, limits);
      if (!all.complete) continue;
      ++finished;
      expect_at_least_as_cheap(optimize(program, grid, inputs, testing::minimizing(objective)), all,
                               "seed " + std::to_string(seed) + "\n" + program.text());
    }
  }
  EXPECT_GT(finished, 1100);
}

}  // namespace
}  // namespace joinsum::optimizer::rules

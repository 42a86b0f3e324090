#include "optimizer/verification/verify.h"

#include <cmath>
#include <set>

#include <gtest/gtest.h>

#include "ia/interpret.h"
#include "optimizer/paper_plans.h"
#include "optimizer/rules/rewrite.h"
#include "optimizer/verification/mutations.h"
#include "optimizer/verification/normal_form.h"
#include "optimizer/verification/shrink.h"
#include "random_plans.h"
#include "tra/lower.h"

namespace joinsum::optimizer::verification {
namespace {

using testing::PaperPlan;

std::string shown(const Verdict& verdict) { return std::string(name_of(verdict.kind)) + ": " + verdict.reason; }

Verdict verdict(const std::string& plan, const std::string& program) {
  return verify(ia::parse(plan), tra::parse(program));
}

// --- what proves a plan ----------------------------------------------------------------------------------------------

TEST(Verify, ProvesThePlansOfThePaper) {
  for (const PaperPlan& paper : testing::paper_plans()) {
    const Verdict found = verify(paper.plan, paper.program);
    EXPECT_EQ(found.kind, Verdict::kProved) << paper.name << "\n" << shown(found);
  }
}

TEST(Verify, ProvesPlansOverArraysOfAnySize) {
  const Verdict found = verdict(R"(ia on 2x5
input A: f32[100000,40000]<10,10> (1, 1)
input B: f32[40000,100000]<10,10> (0, 0)
output C = shuffle[0](agg[0, 2; add](join[1; 0; matmul](A, B)))
)",
                                R"(tra
input A: f32[100000,40000]<10,10>
input B: f32[40000,100000]<10,10>
output C = aggregate[0, 2; add](join[1; 0; matmul](A, B))
)");
  EXPECT_EQ(found.kind, Verdict::kProved) << shown(found);
}

constexpr const char* kSumProgram = R"(tra
input A: f32[100000,40000]<4,2>
input B: f32[100000,40000]<4,2>
output Z = transform[relu](join[0, 1; 0, 1; add](A, B))
)";

std::string sum_plan(const std::string& expression) {
  return "ia on 2\ninput A: f32[100000,40000]<4,2> (0)\ninput B: f32[100000,40000]<4,2> (0)\noutput Z = " + expression;
}

/// a + b = b + a is no law of the normal form.
TEST(Verify, TestsOnSmallArraysWhatLawsDoNotTell) {
  const Verdict found = verdict(sum_plan("join[0, 1; 0, 1; add | relu](B, A)"), kSumProgram);
  EXPECT_EQ(found.kind, Verdict::kTested) << shown(found);
}

TEST(Verify, RefutesOnSmallArraysWhatDiffers) {
  const Verdict found = verdict(sum_plan("join[0, 1; 0, 1; sub | relu](B, A)"), kSumProgram);
  EXPECT_EQ(found.kind, Verdict::kRefuted) << shown(found);
  EXPECT_EQ(found.reason.find("output Z (t0) differs: key=<"), 0U) << found.reason;
}

TEST(Verify, NamesTheOutputThatIsLeftPending) {
  const Verdict found = verdict("ia on 2\ninput A: f32[4]<4> (0)\noutput Z = agg[; add](A)\n",
                                "tra\ninput A: f32[4]<4>\noutput Z = aggregate[; add](A)\n");
  EXPECT_EQ(shown(found), "refuted: output Z (t0) is pending: placement=(+add)");
}

TEST(Verify, NamesTheOutputOfAnotherTypeNameOrTie) {
  const std::string inputs = "input A: f32[4]<4>";
  const std::string program = "tra\n" + inputs + "\noutput Z -> A = transform[relu](A)\n";
  const std::string plan = "ia on 2\n" + inputs + " (0)\n";
  EXPECT_EQ(shown(verdict(plan + "output Y = map[(k0); relu](A)\n", program)), "refuted: output Z is missing");
  EXPECT_EQ(shown(verdict(plan + "output Z = map[(k0); relu](A)\n", program)),
            "refuted: output Z (t0) is tied otherwise: plan=nothing, program=A");
  EXPECT_EQ(shown(verdict(plan + "output Z = filter[k0 < 2](A)\n", program)),
            "refuted: output Z (t0) has another type: plan=f32[2]<2>, program=f32[4]<4>");
  EXPECT_EQ(shown(verdict("ia on 2\ninput B: f32[4]<4> (0)\noutput Z = map[(k0); relu](B)\n", program)),
            "refuted: input B is not in the program");
}

/// 1001 tiles of 100 elements leave no smaller extent with as many tiles.
TEST(Verify, IsUndecidedWhereNoSmallerArraysKeepTheStructure) {
  const Verdict found = verdict(R"(ia on 2
input A: f32[100003@-]<3> (0)
input B: f32[100003@-]<3> (0)
output Z = map[1001: (k0, m); tile[0, 100]](join[0; 0; add](B, A))
)",
                                R"(tra
input A: f32[100003@-]<3>
input B: f32[100003@-]<3>
output Z = tile[0, 100](join[0; 0; add](A, B))
)");
  EXPECT_EQ(found.kind, Verdict::kUndecided) << shown(found);
}

TEST(Verify, IsUndecidedWhereNoRunGivesAFiniteValue) {
  const Verdict found = verdict(
      "ia on 2\ninput A: f64[4]<4> (0)\noutput Z = map[(k0); log | scale[-1] | sqrt | log](map[(k0); square | "
      "negate](A))\n",
      "tra\ninput A: f64[4]<4>\noutput Z = transform[log](transform[negate | square | negate](A))\n");
  EXPECT_EQ(found.kind, Verdict::kUndecided) << shown(found);
}

TEST(Shrunk, KeepsKeysCutsAndPlacements) {
  const auto small = shrunk(ia::parse(R"(ia on 2
input A: f32[100000@0{0,30000,100000},40]<2,1> (0)
input B: f32[100000@0{0,30000,100000},7]<2,1> (*)
output C = broadcast(agg[1, 2; add](join[0; 0; matmul_tn](A, B)))
)"),
                            tra::parse(R"(tra
input A: f32[100000@0{0,30000,100000},40]<2,1>
input B: f32[100000@0{0,30000,100000},7]<2,1>
output C = aggregate[1, 2; add](join[0; 0; matmul_tn](A, B))
)"));
  ASSERT_TRUE(small);
  EXPECT_EQ(small->plan.text(), ia::parse(R"(ia on 2
input A: f32[9@0{0,4,9},3]<2,1> (0)
input B: f32[9@0{0,4,9},2]<2,1> (*)
output C = broadcast(agg[1, 2; add](join[0; 0; matmul_tn](A, B)))
)")
                                    .text());
}

// --- wrong plans -----------------------------------------------------------------------------------------------------

bool far_apart(const tra::Relation& a, const tra::Relation& b) {
  if (a.size() != b.size()) return true;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].first != b[i].first || a[i].second.shape != b[i].second.shape) return true;
    for (size_t v = 0; v < a[i].second.values.size(); ++v) {
      if (!(std::abs(a[i].second.values[v] - b[i].second.values[v]) < 1e-6)) return true;
    }
  }
  return false;
}

/// By the interpreters, on data of the test's own.
bool means_another_thing(const ia::Plan& plan, const tra::Plan& program, testing::RandomPlans& random) {
  const kernels::table::Scalars scalars{{"rate", 0.5}};
  const auto inputs = random.relations(program);
  const auto wanted = tra::interpret(program, inputs, scalars);
  const auto found = ia::interpret(plan, inputs, scalars);
  for (const auto& output : plan.outputs()) {
    const ia::PhysicalType& type = output.node->type();
    if (type.placement.pending()) return true;
    if (far_apart(ia::contents(found.at(output.name), type), wanted.at(output.name))) return true;
  }
  return false;
}

/// Up to `steps` rules, each anywhere in the plan.
ia::Plan rewritten_at_random(ia::Plan plan, int64_t steps, testing::RandomPlans& random) {
  rules::Interner interner;
  plan = interner.intern(plan);
  for (int64_t step = 0; step < steps; ++step) {
    const ia::NodePtr node = random.one_of(plan.order());
    for (int64_t attempt = 0; attempt < 10; ++attempt) {
      const auto made = rules::apply(random.one_of(rules::all_rules()), node);
      if (made.empty()) continue;
      if (auto next = rules::replaced(plan, node, random.one_of(made), interner)) plan = std::move(*next);
      break;
    }
  }
  return plan;
}

/// Mistakes in the paper's plans and in what a few rules make of them. Those that the types refuse, and those that the
/// interpreters do not tell from the program, do not count.
TEST(Verify, RefutesPlansWithAMistake) {
  constexpr int64_t kWanted = 800;
  const auto papers = testing::paper_plans();
  testing::Mutations mutations(1);
  testing::RandomPlans random(2);
  std::set<std::string> seen;
  std::map<std::string, int64_t> refuted;
  int64_t counted = 0;
  for (int64_t draw = 0; counted < kWanted; ++draw) {
    ASSERT_LT(draw, 100 * kWanted) << "mistakes found: " << counted;
    const PaperPlan& paper = papers[draw % papers.size()];
    const ia::Plan plan = rewritten_at_random(paper.plan, random.between(0, 8), random);
    const auto mutant = mutations.mutant(plan);
    if (!mutant.plan || !seen.insert(paper.name + mutant.plan->text()).second) continue;
    if (!means_another_thing(*mutant.plan, paper.program, random)) continue;
    const Verdict found = verify(*mutant.plan, paper.program);
    ASSERT_EQ(found.kind, Verdict::kRefuted) << paper.name << ", " << mutant.kind << "\n"
                                             << shown(found) << "\n"
                                             << mutant.plan->text();
    ++counted;
    ++refuted[mutant.kind];
  }
  for (const auto& kind : testing::Mutations::kinds()) {
    EXPECT_EQ(refuted.contains(kind), kind != "reduced late") << kind;  // the types refuse to reduce late
  }
}

// --- right plans -----------------------------------------------------------------------------------------------------

/// Random programs, each lowered and then rewritten by random rules: none is refuted, nearly all are proved.
TEST(Verify, AcceptsPlansThatRulesMake) {
  constexpr int64_t kPlans = 1500;
  int64_t proved = 0;
  testing::RandomPlans random(3);
  for (int64_t count = 0; count < kPlans; ++count) {
    const tra::Plan program = random.plan(6);
    const ia::Grid grid = random.grid();
    const ia::Plan lowered = tra::lower(program, grid, random.placements(program, grid));
    const ia::Plan plan = rewritten_at_random(lowered, random.between(0, 30), random);
    const Verdict found = verify(plan, program);
    ASSERT_TRUE(found.accepted()) << shown(found) << "\n" << program.text() << plan.text();
    proved += found.kind == Verdict::kProved ? 1 : 0;
  }
  EXPECT_GT(proved, kPlans * 9 / 10);
}

/// Laws of the normal form are laws: it means what the program means.
TEST(NormalForm, KeepsContents) {
  testing::RandomPlans random(4);
  for (int64_t count = 0; count < 1500; ++count) {
    const tra::Plan program = random.plan(8);
    NormalForm form;
    const auto nodes = form.of(program);
    std::vector<ia::Plan::Output> outputs;
    for (size_t i = 0; i < nodes.size(); ++i) outputs.push_back({program.outputs()[i].name, nodes[i], std::nullopt});
    const ia::Plan normal = ia::Plan::make(outputs);
    const auto inputs = random.relations(program);
    const auto wanted = tra::interpret(program, inputs);
    const auto found = ia::interpret(normal, inputs);
    for (const auto& output : normal.outputs()) {
      ASSERT_EQ(ia::contents(found.at(output.name), output.node->type()), wanted.at(output.name))
          << program.text() << normal.text();
    }
  }
}

/// Programs of the paper and a few that the table's rules alone would not make one.
TEST(NormalForm, IsOneForProgramsThatMeanTheSame) {
  const auto same = [](const std::string& a, const std::string& b) {
    const std::string inputs = "tra\ninput A: f64[8,8]<4,4>\ninput B: f64[8,8]<4,4>\noutput Z = ";
    NormalForm form;
    return form.of(tra::parse(inputs + a)) == form.of(tra::parse(inputs + b));
  };
  EXPECT_TRUE(same("filter[k0 < 2](filter[k1 == k0](A))", "filter[k0 < 2 and k1 == k0](A)"));
  EXPECT_TRUE(same("filter[k0 < 2](rekey[(k1, k0)](A))", "rekey[(k1, k0)](filter[k1 < 2](A))"));
  EXPECT_TRUE(same("transform[row_sum](aggregate[0; add](join[0, 1; 0, 1; mul](A, B)))",
                   "aggregate[0; add](join[1, 0; 1, 0; contract[xy,xy->x]](A, B))"));
  EXPECT_TRUE(same("aggregate[1; add](aggregate[0, 2; add](join[1; 0; matmul](A, B)))",
                   "aggregate[2; add](join[1; 0; matmul](A, B))"));
  EXPECT_TRUE(same("transform[transpose](join[0; 0; matmul](A, B))", "join[0; 0; contract[ij,jk->ki]](A, B)"));
  EXPECT_FALSE(same("join[0, 1; 0, 1; sub](A, B)", "join[0, 1; 0, 1; sub](B, A)"));
  EXPECT_FALSE(same("filter[k0 < 2](A)", "filter[k0 < 3](A)"));
}

}  // namespace
}  // namespace joinsum::optimizer::verification

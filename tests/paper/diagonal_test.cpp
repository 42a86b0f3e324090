// The worked chain of the TRA paper, section 5.2.1: diag(X + Y), rule by rule from the translation of Table 1.

#include <gtest/gtest.h>

#include "ia/interpret.h"
#include "ia/text.h"
#include "optimizer/rules/rewrite.h"
#include "tra/interpret.h"
#include "tra/lower.h"
#include "tra/text.h"

namespace joinsum {
namespace {

constexpr const char* kProgram = R"(tra
input X: f32[4,4]<2,2>
input Y: f32[4,4]<2,2>
output Z = transform[diag](rekey[(k0)](filter[k0 == k1](join[0, 1; 0, 1; add](X, Y))))
)";

constexpr const char* kInputs = R"(ia on 2
input X: f32[4,4]<2,2> (0)
input Y: f32[4,4]<2,2> (0)
)";

tra::Relation matrix(const std::vector<std::vector<double>>& blocks) {
  tra::Relation out;
  for (size_t i = 0; i < blocks.size(); ++i) {
    out.emplace_back(Key{static_cast<int64_t>(i) / 2, static_cast<int64_t>(i) % 2},
                     kernels::reference::Array{{2, 2}, blocks[i]});
  }
  return out;
}

ia::Plan parsed(const std::string& expression) { return ia::parse(kInputs + ("output Z = " + expression + "\n")); }

class Diagonal : public ::testing::Test {
 protected:
  /// One application of `rule`, which fits one node of the plan only.
  void apply(const std::string& rule) {
    optimizer::rules::Interner interner;
    const auto rewrites =
        optimizer::rules::rewrites(interner.intern(plan_), {&optimizer::rules::rule_named(rule)}, interner);
    ASSERT_EQ(rewrites.size(), 1U) << rule << "\n" << plan_.text();
    plan_ = rewrites[0].plan;
  }

  void expect(const std::string& expression) {
    EXPECT_EQ(plan_.text(), parsed(expression).text());
    EXPECT_EQ(result(plan_), tra::interpret(program_, inputs_).at("Z"));
  }

  ia::Contents result(const ia::Plan& plan) const {
    return ia::contents(ia::interpret(plan, inputs_).at("Z"), plan.outputs()[0].node->type());
  }

  const tra::Plan program_ = tra::parse(kProgram);
  ia::Plan plan_ = tra::lower(program_, ia::Grid::of_sites(2));
  const std::map<std::string, tra::Relation> inputs_{
      {"X", matrix({{1, 2, 3, 4}, {5, 6, 7, 8}, {9, 10, 11, 12}, {13, 14, 15, 16}})},
      {"Y", matrix({{0, 1, 0, 2}, {3, 0, 4, 0}, {0, 5, 0, 6}, {7, 0, 8, 0}})}};
};

TEST_F(Diagonal, FollowsRuleByRule) {
  expect("map[(k0); diag](map[(k0); id](filter[k0 == k1](join[0, 1; 0, 1; add](broadcast(X), Y))))");
  apply("R1-2");
  expect("map[(k0); diag](filter[k0 == k1](join[0, 1; 0, 1; add](broadcast(X), Y)))");
  apply("R1-6");
  expect("map[(k0); diag](join[0, 1; 0, 1; add](filter[k0 == k1](broadcast(X)), filter[k0 == k1](Y)))");
  apply("R2-2a");
  expect("map[(k0); diag](join[0, 1; 0, 1; add](broadcast(filter[k0 == k1](X)), filter[k0 == k1](Y)))");
  apply("R1-7");
  expect("map[(k0); id](join[0, 1; 0, 1; add | diag](broadcast(filter[k0 == k1](X)), filter[k0 == k1](Y)))");
}

/// The paper's last step moves the key map into the join keys, which is right here: on the keys <i,i> it is injective.
TEST_F(Diagonal, TheLastPlanAsPrintedMeansTheSame) {
  EXPECT_EQ(result(parsed("join[0; 0; add | diag](broadcast(map[(k0); id](filter[k0 == k1](X))), "
                          "map[(k0); id](filter[k0 == k1](Y)))")),
            result(plan_));
}

}  // namespace
}  // namespace joinsum

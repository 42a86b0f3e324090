#include <gtest/gtest.h>

#include "optimizer/rules/random_matches.h"
#include "optimizer/rules/rewrite.h"

namespace joinsum::optimizer::rules {
namespace {

#ifdef __SANITIZE_ADDRESS__
constexpr int64_t kApplications = 100;  // this build runs ten times slower; the other one tries them all
#else
constexpr int64_t kApplications = 2000;
#endif
constexpr int64_t kMostDraws = 400 * kApplications;

class RuleLaw : public ::testing::TestWithParam<std::string> {};

ia::Contents result_of(const ia::Plan& plan, const std::map<std::string, ia::Contents>& inputs) {
  const auto results = ia::interpret(plan, inputs);
  return ia::contents(results.at("Z"), plan.outputs()[0].node->type());
}

std::string shown(const ia::Plan& before, const ia::Plan& after) {
  return "before\n" + before.text() + "after\n" + after.text();
}

/// On random plans, placements and integer relations the rewritten plan type-checks and means the same. The interpreter
/// also holds every node to what its type promises of each site.
TEST_P(RuleLaw, KeepsContentsAndPromises) {
  const Rule& rule = rule_named(GetParam());
  testing::RandomMatches random(hash_text(rule.name));
  int64_t applied = 0;
  for (int64_t draw = 0; applied < kApplications; ++draw) {
    ASSERT_LT(draw, kMostDraws) << "fired " << applied << " times only";
    const auto [drawn, node] = random.plan(rule.pattern);
    const auto fresh = apply(rule, node);
    if (fresh.empty()) continue;
    const auto inputs = random.inputs(drawn);
    const ia::Contents wanted = result_of(drawn, inputs);
    for (const ia::NodePtr& candidate : fresh) {
      Interner interner;
      const auto rewritten = replaced(drawn, node, candidate, interner);
      if (!rewritten) continue;
      ++applied;
      ASSERT_TRUE(result_of(*rewritten, inputs) == wanted) << shown(drawn, *rewritten);
    }
  }
}

std::vector<std::string> names() {
  std::vector<std::string> out;
  for (const Rule& rule : all_rules()) out.push_back(rule.name);
  return out;
}

std::string test_name(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, RuleLaw, ::testing::ValuesIn(names()), test_name);

}  // namespace
}  // namespace joinsum::optimizer::rules

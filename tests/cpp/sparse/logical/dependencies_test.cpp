#include "sparse/logical/dependencies.h"

#include <gtest/gtest.h>

#include "sparse/plan.h"
#include "sparse/programs.h"

namespace joinsum::sparse::logical {
namespace {

using namespace sparse::testing;  // NOLINT: the tests' own words

using Names = std::vector<std::string>;

/// Items i of two other keys, each once: axis 0 determines the others, which determine nothing.
InputTensor items() { return entries({4, 3, 3}, {{0, 1, 2}, {1, 1, 0}, {2, 0, 2}, {3, 0, 2}}); }

/// The normal form of an expression over L, which are items, and others of extents that fit, and what was left out.
std::pair<std::string, Names> unified(const ExpressionPtr& expression, const InputTensor& l = items()) {
  const Distinct distinct = with_distinct_indices(expression, {});
  Readable readable;
  std::map<std::string, int64_t> sizes;
  for (const ExpressionPtr& input : inputs_of(distinct.expression)) {
    const bool is_l = input->tensor == "L";
    readable[input->tensor] = {is_l ? l.shape : Dims(input->indices.size(), 3), is_l ? l.fill : 0};
  }
  IndexSpace space = space_of("test", distinct, {}, readable, sizes);
  Terms terms(chain_estimator(), std::move(space));
  const TermPtr term = lifted(terms, terms.from_expression(distinct.expression, {{"L", {nullptr, l.fill, &l}}}));
  std::vector<int64_t> gone;
  const TermPtr out = with_unified_indices(terms, term, {{"L", dependencies_of(l)}}, &gone);
  Names names;
  for (const int64_t index : gone) names.push_back(terms.space().names[index]);
  return {text_of(terms.to_expression(out)), names};
}

TEST(Dependencies, AreOfAxesWithOneElementForEachCoordinate) {
  const std::vector<Dependency> found = dependencies_of(items());
  ASSERT_EQ(found.size(), 1);
  EXPECT_EQ(found[0].axes, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(found[0].given, std::vector<int64_t>{0});
  EXPECT_TRUE(dependencies_of(entries({2, 2}, {{0, 0}, {0, 1}, {1, 0}})).empty());
}

TEST(Dependencies, AreThoseThatStatisticsStateWhereEntriesAreUnknown) {
  InputTensor known = counted({4, 3, 3}, 4);
  known.degrees = {{{1}, {0, 2}, 1}, {{2}, {0}, 2}};
  ASSERT_EQ(dependencies_of(known).size(), 1);
  EXPECT_EQ(dependencies_of(known)[0].given, (std::vector<int64_t>{0, 2}));
  // Entries say otherwise.
  InputTensor wrong = entries({2, 2}, {{0, 0}, {0, 1}, {1, 0}});
  wrong.degrees = {{{1}, {0}, 1}};
  EXPECT_TRUE(dependencies_of(wrong).empty());
}

TEST(UnifiedIndices, OfATensorJoinedWithItselfByItsKey) {
  const auto [text, gone] =
      unified(sum("ispqr", times({in("L", "isp"), in("A", "sj"), in("L", "iqr"), in("A", "qk")})));
  EXPECT_EQ(text, "+[i,s,p]((L[i,s,p] * A[s,j] * L[i,s,p] * A[s,k]))");
  EXPECT_EQ(gone, (Names{"q", "r"}));
}

TEST(UnifiedIndices, FollowFromOneAnother) {
  // The part of both items is one, as the first one's is; then the second ones agree in theirs.
  const auto [text, gone] =
      unified(sum("iasbtr", times({in("L", "isa"), in("L", "btr"), in("L", "isr"), in("L", "bta"), in("A", "ar")})));
  EXPECT_EQ(text.find("[i,s,r]"), std::string::npos) << text;
  EXPECT_EQ(gone.size(), 1);
}

TEST(UnifiedIndices, KeepFreeIndicesAndTheOnesOfOuterAggregates) {
  const auto [text, gone] = unified(sum("ir", times({in("L", "isp"), in("L", "iqr")})));
  EXPECT_EQ(text, "+[i]((L[i,s,p] * L[i,q,p]))");
  EXPECT_EQ(gone, Names{"r"});
}

TEST(UnifiedIndices, AreNotThoseOfWhatIsNotTheIdentity) {
  const auto apart = [](const ExpressionPtr& expression, const InputTensor& l = items()) {
    EXPECT_TRUE(unified(expression, l).second.empty());
  };
  // Items that differ: 0 is no identity of a maximum, 1 no fill that decides a product, and a sum decides nothing.
  apart(reduce(Operator::kMax, "q", times({in("L", "isp"), in("L", "iqp")})));
  apart(sum("q", plus({in("L", "isp"), in("L", "iqp")})));
  InputTensor ones = items();
  ones.fill = 1;
  apart(sum("q", times({in("L", "isp"), in("L", "iqp")})), ones);
  // Below another map; of another tensor; by an axis that determines nothing.
  apart(sum("q", map(Operator::kExp, {times({in("L", "isp"), in("L", "iqp")})})));
  apart(sum("q", times({in("L", "isp"), in("A", "sqp")})));
  apart(sum("q", times({in("L", "isp"), in("L", "qsp")})));
}

TEST(UnifiedIndices, OfMinimaOfSums) {
  InputTensor l = items();
  l = entries({4, 3, 3}, {{0, 1, 2}, {1, 1, 0}, {2, 0, 2}, {3, 0, 2}}, std::numeric_limits<double>::infinity());
  EXPECT_EQ(unified(reduce(Operator::kMin, "q", plus({in("L", "isp"), in("L", "iqp")})), l).second.size(), 1);
}

TEST(UnifiedIndices, MakePlansOfSquaresCheaper) {
  std::mt19937 random(3);
  std::vector<Dims> rows;
  for (int64_t i = 0; i < 200; ++i) rows.push_back({i, static_cast<int64_t>(random() % 20)});
  const InputTensor l = entries({200, 20}, rows), s = random_entries(random, {20, 30}, 0.9);
  const auto x = [](const std::string& row, const std::string& column) {
    return sum(row, times({in("L", "i" + row), in("S", row + column)}));
  };
  const Program program = program_of({{"L", l}, {"S", s}}, sum("i", times({x("s", "j"), x("t", "k")})), "jk");
  PlanOptions options;
  const double before = plan(program, options).cost;
  options.dependencies = true;
  const ProgramPlan found = plan(program, options);
  EXPECT_LT(found.cost, before);
  // The index that was left out is still one of the order.
  EXPECT_EQ(found.queries[0].logical.order.size(), 3);
}

}  // namespace
}  // namespace joinsum::sparse::logical

#include "sparse/site_queries.h"

#include <limits>

#include <gtest/gtest.h>

#include "sparse/programs.h"

namespace joinsum::sparse {
namespace {

using namespace sparse::testing;  // NOLINT: the tests' own words

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<SiteQuery> queries_of(std::map<std::string, InputTensor> tensors, ExpressionPtr expression,
                                  const std::string& output, std::vector<LevelFormat> formats = {}) {
  PlanOptions options;
  if (!formats.empty()) options.physical.formats["q"] = std::move(formats);
  return site_queries(plan(program_of(std::move(tensors), std::move(expression), output), options));
}

TEST(SiteQueries, NameIndicesByLetters) {
  const auto queries = queries_of({{"A", counted({4, 5}, 6)}, {"B", counted({5, 3}, 6)}},
                                  sum("j", times({in("A", "ij"), in("B", "jk")})), "ik");
  ASSERT_EQ(queries.size(), 1);
  EXPECT_EQ(queries[0].tensors, (std::vector<std::string>{"A", "B"}));
  EXPECT_EQ(queries[0].operands, (std::vector<std::string>{"ac", "cb"}));
  EXPECT_EQ(queries[0].expression, "+[c]((x0[a,c] * x1[c,b]))");
  EXPECT_EQ(queries[0].output, "ab");
  EXPECT_EQ(queries[0].reduce, (std::map<char, std::string>{{'c', "add"}}));
  EXPECT_EQ(queries[0].undivided, "");
}

// The fill of a sparse result has to be what a part that stores nothing stands for.
TEST(SiteQueries, DivideWhatIsReducedWhereTheFillIsNeutral) {
  const auto distances = [](double fill, std::vector<LevelFormat> formats) {
    return queries_of({{"D", counted({9, 9}, 12, fill)}},
                      reduce(Operator::kMin, "j", make_map(Operator::kAdd, {in("D", "ij"), in("D", "jk")})), "ik",
                      std::move(formats))
        .back();
  };
  const std::vector<LevelFormat> lists(2, LevelFormat::kHash), dense(2, LevelFormat::kDense);
  EXPECT_EQ(distances(kInfinity, lists).reduce.size(), 1);
  EXPECT_EQ(distances(1, lists).undivided.size(), 1);
  EXPECT_TRUE(distances(1, lists).reduce.empty());
  EXPECT_EQ(distances(1, dense).reduce.size(), 1);
  EXPECT_EQ(distances(kInfinity, lists).fill, kInfinity);
}

TEST(SiteQueries, TellDiagonalsAndIndicesThatNoOperandHas) {
  const auto diagonal = queries_of({{"A", counted({4, 5, 4}, 6)}}, in("A", "iji"), "ij");
  EXPECT_EQ(diagonal[0].operands, std::vector<std::string>{"ab"});
  EXPECT_EQ(diagonal[0].diagonals[0], (std::vector<std::vector<int64_t>>{{0, 2}, {1}}));
  const Program repeated({{"k", 3}}, {{"v", counted({4}, 2)}}, {{"q", in("v", "i"), {"i", "k"}}});
  const auto added = site_queries(plan(repeated, {}));
  EXPECT_EQ(added[0].extents, (std::map<char, int64_t>{{'b', 3}}));
}

TEST(SiteQueries, AreNoneOfAConstantOrOfADiagonalOfAResult) {
  EXPECT_TRUE(queries_of({}, make_literal(3), "").empty());
  const Program later({}, {{"A", counted({4, 4}, 6)}},
                      {{"p", map(Operator::kExp, {in("A", "ij")}), {"i", "j"}}, {"q", in("p", "ii"), {"i"}}});
  EXPECT_TRUE(site_queries(plan(later, {})).empty());
}

}  // namespace
}  // namespace joinsum::sparse

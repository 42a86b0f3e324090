#include "sparse/physical/physical.h"

#include <gtest/gtest.h>

#include "sparse/plan.h"
#include "sparse/programs.h"

namespace joinsum::sparse::physical {
namespace {

using namespace sparse::testing;  // NOLINT: the tests' own words
using enum LevelFormat;

using Formats = std::vector<LevelFormat>;

TEST(Formats, FollowDensityAndOrder) {
  const FormatCutoffs cutoffs;
  EXPECT_EQ(choose_formats({10, 10}, {6, 6}, {"i", "j"}, {"i", "j"}, cutoffs), (Formats{kDense, kBytemap}));
  EXPECT_EQ(choose_formats({100, 100}, {5, 10}, {"i", "j"}, {"i", "j"}, cutoffs), (Formats{kSortedList, kSortedList}));
  EXPECT_EQ(choose_formats({100, 100}, {5, 10}, {"i", "j"}, {"i", "k", "j"}, cutoffs), (Formats{kSortedList, kHash}));
  EXPECT_EQ(choose_formats({100, 100}, {5, 10}, {"j", "i"}, {"i", "j"}, cutoffs), (Formats{kHash, kHash}));
}

TEST(Formats, TakeCutoffsAsStrict) {
  EXPECT_EQ(choose_formats({10}, {5}, {"i"}, {"i"}, {0.05, 0.5}), Formats{kBytemap});
  EXPECT_EQ(choose_formats({100}, {5}, {"i"}, {"i"}, {0.05, 0.5}), Formats{kSortedList});
  EXPECT_EQ(choose_formats({100}, {5}, {"i"}, {"i"}, {0.01, 0.04}), Formats{kDense});
  EXPECT_EQ(choose_formats({0, 5}, {0, 0}, {"i", "j"}, {"i", "j"}, {}), (Formats{kSortedList, kSortedList}));
  EXPECT_EQ(choose_formats({100}, {100}, {"i"}, {"i"}, {0.05, 0.5, 50}), Formats{kSortedList});
}

PhysicalQuery only_kernel(const Program& over) {
  PlanOptions options;
  options.logical.estimator = exact_estimator();
  const ProgramPlan planned = plan(over, options);
  EXPECT_EQ(planned.queries.front().physical.size(), 1);
  return planned.queries.front().physical.front();
}

using Protocols = std::vector<Protocol>;

TEST(Merge, LetsTheOperandOfTheFewestEntriesLead) {
  const InputTensor many = entries({4}, {{0}, {1}, {2}}), few = entries({4}, {{1}});
  const PhysicalQuery kernel =
      only_kernel(program_of({{"u", many}, {"v", few}}, sum("i", times({in("u", "i"), in("v", "i")})), ""));
  EXPECT_EQ(kernel.accesses[0].protocols, Protocols{Protocol::kLookup});
  EXPECT_EQ(kernel.accesses[1].protocols, Protocols{Protocol::kWalk});
  EXPECT_EQ(kernel.walks[0].walkers, std::vector<int64_t>{1});
}

TEST(Merge, WalksAllOfAUnion) {
  const InputTensor u = entries({4}, {{0}, {1}}), v = entries({4}, {{1}});
  const PhysicalQuery kernel = only_kernel(program_of({{"u", u}, {"v", v}}, plus({in("u", "i"), in("v", "i")}), "i"));
  EXPECT_EQ(kernel.accesses[0].protocols, Protocols{Protocol::kWalk});
  EXPECT_EQ(kernel.accesses[1].protocols, Protocols{Protocol::kWalk});
  EXPECT_EQ(kernel.walks[0].walkers, (std::vector<int64_t>{0, 1}));
}

TEST(Merge, DoesNotLetAnOperandLeadBelowAMapThatKeepsItsFill) {
  const InputTensor u = entries({4}, {{0}}), v = entries({4}, {{0}, {1}, {2}});
  const ExpressionPtr body = times({map(Operator::kExp, {in("u", "i")}), in("v", "i")});
  const PhysicalQuery kernel = only_kernel(program_of({{"u", u}, {"v", v}}, sum("i", body), ""));
  EXPECT_EQ(kernel.accesses[0].protocols, Protocols{Protocol::kLookup});
  EXPECT_EQ(kernel.accesses[1].protocols, Protocols{Protocol::kWalk});
}

TEST(Merge, VisitsTheWholeRangeWhereEveryCoordinateCounts) {
  const InputTensor u = entries({4}, {{0}}), v = entries({5}, {{0}, {1}});
  const PhysicalQuery kernel = only_kernel(program_of({{"u", u}, {"v", v}}, plus({in("u", "i"), in("v", "j")}), "ij"));
  for (const Loop& loop : kernel.walks) EXPECT_TRUE(loop.walkers.empty());
}

TEST(CommonQueries, AreFoundBelowOtherNamesAndOrders) {
  const std::map<std::string, InputTensor> tensors = {{"A", counted({9, 9}, 20)}, {"B", counted({9, 9}, 30)}};
  const auto product = [](const std::string& i, const std::string& j, const std::string& k, bool swapped) {
    std::vector<ExpressionPtr> factors = {in("A", i + j), in("B", j + k)};
    if (swapped) std::swap(factors[0], factors[1]);
    return sum(j, times(factors));
  };
  const Program over({}, tensors,
                     {{"p", product("i", "j", "k", false), {"i", "k"}},
                      {"q", product("x", "y", "z", true), {"x", "z"}},
                      {"r", product("x", "y", "z", true), {"z", "x"}}});
  EXPECT_EQ(classes_of(plan(over, {})), (std::vector<std::vector<std::string>>{{"p", "q"}}));
}

TEST(CommonQueries, AreFoundOneAfterTheOther) {
  const std::map<std::string, InputTensor> tensors = {{"A", counted({9, 9}, 20)}};
  const Program over({}, tensors,
                     {{"p", sum("j", in("A", "ij")), {"i"}},
                      {"q", sum("k", in("A", "ik")), {"i"}},
                      {"s", map(Operator::kExp, {in("p", "i")}), {"i"}},
                      {"t", map(Operator::kExp, {in("q", "j")}), {"j"}}});
  EXPECT_EQ(classes_of(plan(over, {})), (std::vector<std::vector<std::string>>{{"p", "q"}, {"s", "t"}}));
}

}  // namespace
}  // namespace joinsum::sparse::physical

#include "optimizer/min_sum/min_sum.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/check.h"
#include "base/dims.h"

namespace joinsum::optimizer::min_sum {
namespace {

constexpr double kForbidden = std::numeric_limits<double>::infinity();

using Edges = std::vector<std::pair<int64_t, int64_t>>;

/// Problems with small integers, so that sums are exact and ties are frequent.
class RandomProblems {
 public:
  explicit RandomProblems(uint64_t seed) : random_(seed) {}

  int64_t below(int64_t limit) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(limit)); }

  /// One entry in `one_in` is forbidden, or none where that is 0.
  std::vector<double> table(int64_t entries, int64_t one_in) {
    std::vector<double> out;
    for (int64_t i = 0; i < entries; ++i) {
      const bool forbidden = one_in > 0 && below(one_in) == 0;
      out.push_back(forbidden ? kForbidden : static_cast<double>(below(20) - 5));
    }
    return out;
  }

  Problem problem(const std::vector<int64_t>& domains, const Edges& edges, int64_t one_in) {
    Problem out;
    for (const int64_t domain : domains) out.add_variable(table(domain, 2 * one_in));
    for (const auto& [a, b] : edges) out.add_pair(a, b, table(domains[a] * domains[b], one_in));
    return out;
  }

  std::vector<int64_t> domains(int64_t count, int64_t greatest) {
    std::vector<int64_t> out;
    for (int64_t i = 0; i < count; ++i) out.push_back(1 + below(greatest));
    return out;
  }

  /// A tree, a cycle, a clique, or a random graph: perhaps disconnected, with pairs named twice and backwards.
  Edges edges(int64_t variables) {
    Edges out;
    const int64_t shape = below(4);
    for (int64_t x = 1; x < variables; ++x) {
      if (shape == 0) out.push_back({below(x), x});
      if (shape == 1) out.push_back({x - 1, x});
      for (int64_t y = 0; y < x; ++y) {
        if (shape == 2 || (shape == 3 && below(3) == 0)) out.push_back({x, y});
        if (shape == 3 && below(8) == 0) out.push_back({y, x});
      }
    }
    if (shape == 1 && variables > 2) out.push_back({variables - 1, 0});
    return out;
  }

  Problem any(int64_t most_variables, int64_t greatest_domain) {
    const int64_t variables = below(most_variables + 1);
    const int64_t one_in = below(2) == 0 ? 0 : 2 + below(8);
    return problem(domains(variables, greatest_domain), edges(variables), one_in);
  }

 private:
  std::mt19937_64 random_;
};

Problem clique(int64_t variables, int64_t domain, int64_t one_in) {
  RandomProblems random(variables);
  Edges edges;
  for (int64_t x = 0; x < variables; ++x) {
    for (int64_t y = 0; y < x; ++y) edges.push_back({y, x});
  }
  return random.problem(std::vector<int64_t>(variables, domain), edges, one_in);
}

Problem grid(int64_t rows, int64_t columns, int64_t domain) {
  RandomProblems random(rows);
  Edges edges;
  for (int64_t x = 0; x < rows * columns; ++x) {
    if (x % columns > 0) edges.push_back({x - 1, x});
    if (x >= columns) edges.push_back({x, x - columns});
  }
  return random.problem(std::vector<int64_t>(rows * columns, domain), edges, 0);
}

double least_cost(const Problem& problem) {
  Key domains;
  for (int64_t x = 0; x < problem.variables(); ++x) domains.push_back(problem.values(x));
  double least = kForbidden;
  for_each_key(Box::below(domains), [&](const Key& values) { least = std::min(least, problem.cost(values)); });
  return least;
}

std::string message_of(const auto& call) {
  try {
    call();
  } catch (const PlanError& error) {
    return error.what();
  }
  return "no error";
}

bool starts_with(const std::string& text, const std::string& start) { return text.rfind(start, 0) == 0; }

TEST(MinSum, AnEmptyProblemCostsNothing) {
  const Solution solution = solve({});
  EXPECT_TRUE(solution.values.empty());
  EXPECT_EQ(solution.cost, 0);
  EXPECT_EQ(solution.lower_bound, 0);
  EXPECT_TRUE(solution.exact);
}

TEST(MinSum, AVariableAloneTakesItsLowestBestValue) {
  Problem problem;
  problem.add_variable({3, 1, 2, 1});
  problem.add_variable({kForbidden, -4});
  const Solution solution = solve(problem);
  EXPECT_EQ(solution.values, (std::vector<int64_t>{1, 1}));
  EXPECT_EQ(solution.cost, -3);
}

TEST(MinSum, TablesOnOnePairAddUpInEitherDirection) {
  Problem problem;
  const int64_t a = problem.add_variable({0, 0});
  const int64_t b = problem.add_variable({0, 0, 0});
  problem.add_pair(a, b, {1, 2, 3, 4, 5, 6});
  problem.add_pair(b, a, {10, 40, 20, 50, 30, 60});
  ASSERT_EQ(problem.pairs().size(), 1);
  EXPECT_EQ(*problem.pairs()[0].table, (std::vector<double>{11, 22, 33, 44, 55, 66}));
  EXPECT_EQ(problem.cost({1, 2}), 66);
}

TEST(MinSum, FindsTheLeastCostOfSmallProblems) {
  RandomProblems random(1);
  int64_t forbidden = 0;
  for (int64_t i = 0; i < 4000; ++i) {
    const Problem problem = random.any(6, 4);
    const double least = least_cost(problem);
    if (least == kForbidden) {
      ASSERT_TRUE(starts_with(message_of([&] { solve(problem); }), "min_sum: no assignment is allowed: ")) << i;
      ++forbidden;
      continue;
    }
    const Solution solution = solve(problem);
    ASSERT_TRUE(solution.exact) << i;
    ASSERT_EQ(solution.cost, least) << i;
    ASSERT_EQ(solution.lower_bound, least) << i;
    ASSERT_EQ(problem.cost(solution.values), least) << i;
  }
  EXPECT_GT(forbidden, 100);
  EXPECT_LT(forbidden, 2000);
}

TEST(MinSum, UnderAnyCapTheLeastCostLiesBetweenTheBoundAndTheCost) {
  RandomProblems random(2);
  int64_t proven = 0;
  int64_t open = 0;
  for (int64_t i = 0; i < 3000; ++i) {
    const Problem problem = random.any(6, 4);
    const Limits limits{.table_entries = static_cast<double>(1 + random.below(40)), .deadline = {}};
    const double least = least_cost(problem);
    if (least == kForbidden) {
      ASSERT_TRUE(starts_with(message_of([&] { solve(problem, limits); }), "min_sum: no assignment is allowed: ")) << i;
      continue;
    }
    const Solution solution = solve(problem, limits);
    ASSERT_EQ(problem.cost(solution.values), solution.cost) << i;
    ASSERT_LE(solution.lower_bound, least) << i;
    ASSERT_GE(solution.cost, least) << i;
    ASSERT_EQ(solution.exact, solution.lower_bound == solution.cost) << i;
    ++(solution.exact ? proven : open);
  }
  EXPECT_GT(proven, 100);
  EXPECT_GT(open, 100);
}

TEST(MinSum, ACapBoundsTheTables) {
  const Problem problem = clique(8, 5, 0);
  const Solution capped = solve(problem, {.table_entries = 130, .deadline = {}});
  EXPECT_LE(capped.largest_table, 130);
  EXPECT_FALSE(capped.exact);
  const Solution free = solve(problem);
  EXPECT_TRUE(free.exact);
  EXPECT_GT(free.largest_table, 130);
  EXPECT_LE(capped.lower_bound, free.cost);
  EXPECT_GE(capped.cost, free.cost);
}

TEST(MinSum, NoChangeOfOneOrTwoVariablesImprovesACappedSolution) {
  const Problem problem = clique(7, 4, 0);
  const Solution solution = solve(problem, {.table_entries = 1, .deadline = {}});
  for (int64_t x = 0; x < 7; ++x) {
    for (int64_t y = 0; y < x; ++y) {
      for (int64_t change = 0; change < 16; ++change) {
        std::vector<int64_t> values = solution.values;
        values[x] = change / 4;
        values[y] = change % 4;
        EXPECT_GE(problem.cost(values), solution.cost);
      }
    }
  }
}

TEST(MinSum, TheSameProblemHasTheSameSolution) {
  RandomProblems random(3);
  for (int64_t i = 0; i < 200; ++i) {
    const Problem problem = random.problem(random.domains(12, 5), random.edges(12), 0);
    for (const double cap : {20.0, 1e7}) {
      const Solution first = solve(problem, {.table_entries = cap, .deadline = {}});
      const Solution second = solve(problem, {.table_entries = cap, .deadline = {}});
      ASSERT_EQ(first.values, second.values) << i;
      ASSERT_EQ(first.lower_bound, second.lower_bound) << i;
    }
  }
}

TEST(MinSum, ALongChainIsExact) {
  RandomProblems random(4);
  constexpr int64_t kLength = 5000;
  Edges edges;
  for (int64_t x = 1; x < kLength; ++x) edges.push_back({x, x - 1});
  const Problem problem = random.problem(std::vector<int64_t>(kLength, 6), edges, 0);
  std::vector<double> least = problem.unary(0);
  for (int64_t x = 1; x < kLength; ++x) {
    std::vector<double> next(6, kForbidden);
    for (int64_t i = 0; i < 36; ++i) {
      const double cost = least[i / 6] + (*problem.pairs()[x - 1].table)[i] + problem.unary(x)[i % 6];
      next[i % 6] = std::min(next[i % 6], cost);
    }
    least = next;
  }
  const Solution solution = solve(problem);
  EXPECT_TRUE(solution.exact);
  EXPECT_LE(solution.largest_table, 36);
  EXPECT_EQ(solution.cost, *std::min_element(least.begin(), least.end()));
}

TEST(MinSum, AWideStarIsExact) {
  RandomProblems random(5);
  Edges edges;
  for (int64_t x = 1; x < 1000; ++x) edges.push_back({0, x});
  const Problem problem = random.problem(std::vector<int64_t>(1000, 4), edges, 0);
  const Solution solution = solve(problem);
  EXPECT_TRUE(solution.exact);
  EXPECT_LE(solution.largest_table, 16);
}

TEST(MinSum, AGridIsExactWithinItsWidthAndBoundedBeyond) {
  const Problem problem = grid(4, 20, 6);
  const Solution exact = solve(problem);
  EXPECT_TRUE(exact.exact);
  const Solution bounded = solve(problem, {.table_entries = 300, .deadline = {}});
  EXPECT_LE(bounded.lower_bound, exact.cost);
  EXPECT_GE(bounded.cost, exact.cost);
}

TEST(MinSum, ADeadlineEndsTheSearchWithAnAllowedAssignment) {
  using std::chrono::milliseconds;
  using std::chrono::steady_clock;
  const Problem problem = clique(30, 40, 200);
  for (const int64_t wait : {0, 100}) {
    const auto deadline = steady_clock::now() + milliseconds(wait);
    const Solution solution = solve(problem, {.table_entries = 1e9, .deadline = deadline});
    // Generous, for slow machines under load; without a deadline this takes minutes.
    EXPECT_LT(steady_clock::now() - deadline, milliseconds(1500));
    EXPECT_FALSE(solution.exact);
    EXPECT_LT(solution.cost, kForbidden);
    EXPECT_LE(solution.lower_bound, solution.cost);
    EXPECT_EQ(problem.cost(solution.values), solution.cost);
  }
}

TEST(MinSum, PastTheDeadlineTheLeastCostStillLiesBetweenTheBoundAndTheCost) {
  RandomProblems random(6);
  for (int64_t i = 0; i < 1000; ++i) {
    const Problem problem = random.any(4, 4);
    const double least = least_cost(problem);
    const Limits limits{.table_entries = 100, .deadline = std::chrono::steady_clock::now()};
    if (least == kForbidden) {
      ASSERT_TRUE(starts_with(message_of([&] { solve(problem, limits); }), "min_sum: no assignment is allowed: ")) << i;
      continue;
    }
    const Solution solution = solve(problem, limits);
    ASSERT_EQ(problem.cost(solution.values), solution.cost) << i;
    ASSERT_LE(solution.lower_bound, least) << i;
    ASSERT_GE(solution.cost, least) << i;
  }
}

/// Asks for more different values than there are, which takes long to refute without tables.
TEST(MinSum, ASearchThatGivesUpSaysSo) {
  Problem problem;
  std::vector<double> different(144, 0);
  for (int64_t value = 0; value < 12; ++value) different[13 * value] = kForbidden;
  for (int64_t x = 0; x < 13; ++x) {
    problem.add_variable(std::vector<double>(12, 0));
    for (int64_t y = 0; y < x; ++y) problem.add_pair(x, y, different);
  }
  EXPECT_EQ(message_of([&] { solve(problem, {.table_entries = 1, .deadline = {}}); }),
            "min_sum: found no allowed assignment within the limits, though there may be one: variables=13, "
            "table_entries=1, past the deadline=no");
}

TEST(MinSum, AProblemThatOnlySearchCanSeeToBeForbiddenIsRejected) {
  const std::vector<double> different{kForbidden, 0, 0, 0, kForbidden, 0, 0, 0, kForbidden};
  Problem problem;
  for (int64_t x = 0; x < 4; ++x) {
    problem.add_variable({0, 0, 0});
    for (int64_t y = 0; y < x; ++y) problem.add_pair(x, y, different);
  }
  for (const double cap : {1.0, 1e6}) {
    EXPECT_EQ(message_of([&] { solve(problem, {.table_entries = cap, .deadline = {}}); }),
              "min_sum: no assignment is allowed: variables=4");
  }
}

TEST(MinSum, AnInputThatCannotBeRightIsNamed) {
  Problem problem;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(message_of([&] { problem.add_variable({}); }), "min_sum: a variable has no values: variable=0");
  EXPECT_EQ(message_of([&] { problem.add_variable({1, nan}); }),
            "min_sum: an entry is neither a finite number nor +infinity: variable=[0], entry=nan");
  problem.add_variable({1, 2});
  problem.add_variable({1, 2, 3});
  EXPECT_EQ(message_of([&] { problem.add_pair(0, 2, {1, 2}); }),
            "min_sum: a pair names an unknown variable: pair=[0, 2], variable=2, variables=2");
  EXPECT_EQ(message_of([&] { problem.add_pair(-1, 1, {1, 2}); }),
            "min_sum: a pair names an unknown variable: pair=[-1, 1], variable=-1, variables=2");
  EXPECT_EQ(message_of([&] { problem.add_pair(1, 1, {1, 2}); }),
            "min_sum: a pair names one variable twice: variable=1");
  EXPECT_EQ(message_of([&] { problem.add_pair(1, 0, {1, 2}); }),
            "min_sum: a table does not fit its pair: pair=[1, 0], entries=2, values=[3, 2]");
  EXPECT_EQ(message_of([&] { problem.add_pair(0, 1, {1, 2, 3, 4, 5, -kForbidden}); }),
            "min_sum: an entry is neither a finite number nor +infinity: pair=[0, 1], entry=-inf");
  EXPECT_EQ(message_of([&] { problem.cost({0}); }),
            "min_sum: an assignment needs one value per variable: values=1, variables=2");
  EXPECT_EQ(message_of([&] { problem.cost({0, 3}); }),
            "min_sum: a variable has no such value: variable=1, value=3, values=3");
  EXPECT_EQ(message_of([&] { solve(problem, {.table_entries = 0, .deadline = {}}); }),
            "min_sum: a limit is below 1: table_entries=0");
  EXPECT_TRUE(problem.pairs().empty());
}

TEST(MinSum, AVariableWithoutAllowedValuesIsNamed) {
  Problem problem;
  problem.add_variable({0});
  problem.add_variable({kForbidden, kForbidden});
  EXPECT_EQ(message_of([&] { solve(problem); }),
            "min_sum: no assignment is allowed: a variable's values are all forbidden: variable=1, values=2");
}

}  // namespace
}  // namespace joinsum::optimizer::min_sum

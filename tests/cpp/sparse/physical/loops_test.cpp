#include "sparse/physical/loops.h"

#include <algorithm>
#include <numeric>

#include <gtest/gtest.h>

#include "sparse/plan.h"
#include "sparse/programs.h"

namespace joinsum::sparse::physical {
namespace {

using namespace sparse::testing;  // NOLINT: the tests' own words

LoopOrder order_of(const Program& over, const std::vector<std::string>& loops, const std::string& estimator = "exact") {
  return order_costs(over, 0, loops, estimator_named(estimator));
}

TEST(LoopOrder, BeginsWithTheMostSelectiveOperand) {
  // Galley, example 6.1: one entry in A, five in each row and column of B and C.
  std::vector<Dims> banded;
  for (int64_t i = 0; i < 20; ++i) {
    for (int64_t d = 0; d < 5; ++d) banded.push_back({i, (i + d) % 20});
  }
  const Program over = program_of(
      {{"A", entries({20, 20}, {{3, 4}})}, {"B", entries({20, 20}, banded)}, {"C", entries({20, 20}, banded)}},
      sum("jk", times({in("A", "ij"), in("B", "jk"), in("C", "kl")})), "il");
  const LoopOrder good = order_of(over, {"i", "j", "k", "l"}), bad = order_of(over, {"l", "k", "j", "i"});
  EXPECT_EQ(good.iterations, (std::vector<double>{1, 1, 5, 25}));
  EXPECT_EQ(good.cost, 32);
  EXPECT_EQ(bad.iterations, (std::vector<double>{20, 100, 25, 25}));
  // All three operands are read against their order.
  EXPECT_EQ(bad.cost, 170 + 1 + 100 + 100);
}

TEST(LoopOrder, UnitesOperandsThatDoNotAnnihilate) {
  const Program over = program_of({{"A", entries({4, 4}, {{0, 1}, {2, 2}})}, {"B", entries({4, 4}, {{0, 1}, {3, 3}})}},
                                  plus({in("A", "ij"), in("B", "ij")}), "ij");
  EXPECT_EQ(order_of(over, {"i", "j"}).iterations, (std::vector<double>{3, 3}));
}

TEST(LoopOrder, KeepsTheOrderOfTheOutputBelowLoopsOfOneVisit) {
  // Line items i of a part p, with one supplier s each, and all other line items of that part.
  std::mt19937 random(3);
  std::uniform_int_distribution<int64_t> part(0, 199), supplier(0, 49);
  std::vector<Dims> items;
  for (int64_t i = 0; i < 20'000; ++i) items.push_back({i, part(random), supplier(random)});
  const InputTensor of_items = entries({20'000, 200, 50}, items), vector = entries({50}, {{1}, {2}, {3}});
  const Program over =
      program_of({{"L", of_items}, {"V", vector}},
                 sum("pst", times({in("L", "ips"), in("L", "kpt"), plus({in("V", "s"), in("V", "t")})})), "ik");
  const ProgramPlan planned = plan(over, {});
  const PhysicalQuery& query = planned.queries.front().physical.back();
  std::string loops;
  for (const int64_t loop : query.loops) loops += planned.queries.front().logical.space.names[loop];
  EXPECT_LT(loops.find('k'), loops.find('t')) << loops;
}

TEST(LoopOrder, OfACycleGoesAlongEdgesThoughHubsMayLeadAnywhere) {
  // A graph with a hub: by its degree each path of two edges may have as many ends, so that all pairs of ends look
  // cheap.
  std::mt19937 random(4);
  std::uniform_int_distribution<int64_t> vertex(0, 1999);
  std::vector<Dims> edges;
  for (int64_t v = 1; v < 600; ++v) edges.insert(edges.end(), {{0, v}, {v, 0}});
  for (int i = 0; i < 6000; ++i) {
    const int64_t a = vertex(random), b = vertex(random);
    edges.insert(edges.end(), {{a, b}, {b, a}});
  }
  std::ranges::sort(edges);
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  std::vector<Dims> some;
  for (int64_t v = 0; v < 2000; v += 3) some.push_back({v});
  const InputTensor label = entries({2000}, some);
  const Program over = program_of({{"E", entries({2000, 2000}, edges)}, {"A", label}},
                                  sum("b", times({in("E", "ab"), in("E", "bc"), in("A", "a"), in("A", "c")})), "ac");
  const ProgramPlan planned = plan(over, {});
  const PhysicalQuery& query = planned.queries.front().physical.back();
  EXPECT_EQ(planned.queries.front().logical.space.names[query.loops[1]], "b");
}

TEST(LoopOrder, OfASquareIsThatOfTheTensor) {
  // Items of two keys, summed for pairs of these: by rows of the result, which a table of all pairs would scatter.
  InputTensor items = counted({1'500'000, 2500, 375'000}, 1.5e6);
  items.degrees = {{{1, 2}, {0}, 1}};
  const auto order = [&](const ExpressionPtr& body) {
    const Program over = program_of({{"L", items}}, sum("i", body), "so");
    std::string loops;
    const PlannedQuery planned = plan(over, {}).queries[0];
    for (const int64_t loop : planned.physical[0].loops) loops += planned.logical.space.names[loop];
    return loops;
  };
  EXPECT_EQ(order(in("L", "iso")).front(), 's');
  EXPECT_EQ(order(times({in("L", "iso"), in("L", "iso")})), order(in("L", "iso")));
}

TEST(LoopOrder, RefusesLoopsThatAreMissing) {
  const Program over = program_of({{"A", entries({4, 4}, {{0, 1}})}}, sum("j", in("A", "ij")), "i");
  EXPECT_THROW(order_of(over, {"i"}), PlanError);
  EXPECT_THROW(order_of(over, {"i", "i"}), PlanError);
  EXPECT_THROW(order_of(over, {"i", "x"}), PlanError);
}

TEST(LoopOrder, IsTheCheapestOfAllOrders) {
  std::mt19937 random(11);
  for (int round = 0; round < 80; ++round) {
    std::map<std::string, InputTensor> tensors;
    std::vector<ExpressionPtr> factors;
    const std::string letters = "abcde";
    std::uniform_int_distribution<> letter(0, 4);
    for (int i = 0; i < 4; ++i) {
      const int first = letter(random), second = (first + 1 + letter(random) % 4) % 5;
      const std::string name(1, static_cast<char>('A' + i));
      tensors[name] = random_entries(random, {6, 6}, 0.2);
      factors.push_back(in(name, std::string{letters[first], letters[second]}));
    }
    const ExpressionPtr body = times(factors);
    std::vector<std::string> indices = free_indices(body);
    std::string all;
    for (const std::string& index : indices) all += index;
    const Program over = program_of(tensors, body, all);
    double least = std::numeric_limits<double>::infinity();
    std::ranges::sort(indices);
    do {
      least = std::min(least, order_of(over, indices).cost);
    } while (std::ranges::next_permutation(indices).found);
    PlanOptions options;
    options.logical.estimator = exact_estimator();
    EXPECT_NEAR(plan(over, options).queries[0].physical[0].cost, least, 1e-9 * least) << text_of(body);
  }
}

}  // namespace
}  // namespace joinsum::sparse::physical

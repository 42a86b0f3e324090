#include "sparse/run.h"

#include <cmath>

#include <gtest/gtest.h>

#include "programs.h"

namespace joinsum::sparse {
namespace {

using namespace testing;  // NOLINT: what programs are written with

/// Σ_j A[i, j] B[j, k] for A of two entries in one row and B of all.
Program product_below(Operator map) {
  const InputTensor a = entries({3, 2}, {{1, 0}, {1, 1}}), b = entries({2, 2}, {{0, 0}, {0, 1}, {1, 0}, {1, 1}});
  const ExpressionPtr total = sum("j", times({in("A", "ij"), in("B", "jk")}));
  return program_of({{"A", a}, {"B", b}}, make_map(map, {total}), "ik");
}

TensorPtr result_of(const Program& over, const ProgramPlan& planned) {
  return Runner(over, planned).run({}, {.engine = kernels::Engine::kInterpreter}).begin()->second;
}

TEST(Runner, MapsTheValuesOfAResultInItsLevels) {
  const Program over = product_below(Operator::kExp);
  const ProgramPlan planned = plan(over, {});
  ASSERT_EQ(planned.queries.front().physical.size(), 2);
  EXPECT_TRUE(planned.queries.front().physical.back().maps_values);
  const TensorPtr result = result_of(over, planned);
  EXPECT_EQ(result->fill, 1);
  const Coordinates elements = to_coordinates(*result, true);
  ASSERT_EQ(elements.count(), 2);
  EXPECT_EQ(std::vector<int64_t>(elements.axes[0].begin(), elements.axes[0].end()), (std::vector<int64_t>{1, 1}));
  EXPECT_DOUBLE_EQ(elements.values.as<double>()[0], std::exp(2.0));
}

TEST(Runner, MapsTheValuesOfHashTablesInLists) {
  const Program over = product_below(Operator::kExp);
  const ProgramPlan before = plan(over, {});
  const std::vector<LogicalQuery>& queries = before.queries.front().logical.queries;
  for (const auto& [first, second] : {std::pair(LevelFormat::kHash, LevelFormat::kSortedList),
                                      std::pair(LevelFormat::kSortedList, LevelFormat::kHash)}) {
    PlanOptions options;
    options.physical.formats = {{queries[0].name, {LevelFormat::kDense, first}},
                                {queries[1].name, {LevelFormat::kDense, second}}};
    const ProgramPlan planned = plan(over, options);
    const TensorPtr result = result_of(over, planned);
    EXPECT_EQ(result->levels[1].format, second);
    tensor::check(*result);
    EXPECT_EQ(to_coordinates(*result, true).count(), 2);
    EXPECT_DOUBLE_EQ(result->values.as<double>()[1], std::exp(2.0));
  }
}

TEST(Runner, GivesTheResultsOfAllQueriesOnDemand) {
  const Program over = product_below(Operator::kNegate);
  const ProgramPlan planned = plan(over, {});
  Runner runner(over, planned);
  const auto every = runner.run({}, {.engine = kernels::Engine::kInterpreter}, {.every = true});
  EXPECT_EQ(every.size(), 2);
  EXPECT_EQ(runner.run({}, {.engine = kernels::Engine::kInterpreter}).size(), 1);
}

TEST(Plan, KeepsAnAggregateWhole) {
  const InputTensor a = entries({2, 3}, {{0, 1}}), b = entries({3, 2}, {{1, 0}}), c = entries({2, 2}, {{0, 1}});
  const ExpressionPtr chain = sum("jk", times({in("A", "ij"), in("B", "jk"), in("C", "kl")}));
  const Program over = program_of({{"A", a}, {"B", b}, {"C", c}}, chain, "il");
  PlanOptions options;
  options.logical.absorption = logical::Absorption::kSingle;
  EXPECT_EQ(plan(over, options).queries.front().logical.queries.size(), 2);
  options.logical.whole = true;
  const ProgramPlan planned = plan(over, options);
  ASSERT_EQ(planned.queries.front().logical.queries.size(), 1);
  EXPECT_EQ(planned.queries.front().logical.queries.front().name, over.queries().front().name);
  EXPECT_EQ(to_coordinates(*result_of(over, planned), true).count(), 1);
}

}  // namespace
}  // namespace joinsum::sparse

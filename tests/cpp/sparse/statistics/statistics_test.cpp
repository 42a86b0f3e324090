#include "sparse/statistics/statistics.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include <gtest/gtest.h>

#include "sparse/plan.h"
#include "sparse/programs.h"

namespace joinsum::sparse::statistics {
namespace {

using namespace sparse::testing;  // NOLINT: the tests' own words

double estimated(const std::string& estimator, const std::map<std::string, InputTensor>& tensors,
                 const ExpressionPtr& expression) {
  std::map<std::string, InputTensor> all = tensors;
  // Any query: only the tensors count.
  const Program any({}, all, {{"q", make_literal(0), {}}});
  return estimate(expression, any, estimator_named(estimator));
}

TEST(UniformEstimator, MultipliesProbabilities) {
  const std::map<std::string, InputTensor> tensors = {{"A", counted({10, 20}, 50)}, {"B", counted({20, 5}, 25)}};
  const double join = 10 * 20 * 5 * (50.0 / 200) * (25.0 / 100);
  EXPECT_DOUBLE_EQ(estimated("uniform", tensors, times({in("A", "ij"), in("B", "jk")})), join);
  const double p = 0.25 * 0.25;
  EXPECT_NEAR(estimated("uniform", tensors, sum("j", times({in("A", "ij"), in("B", "jk")}))),
              50 * (1 - std::pow(1 - p, 20)), 1e-9);
  EXPECT_NEAR(estimated("uniform", tensors, plus({in("A", "ij"), in("B", "jk")})), 1000 * (1 - 0.75 * 0.75), 1e-9);
}

TEST(UniformEstimator, KeepsItsDigitsAtTheCorners) {
  const std::map<std::string, InputTensor> tensors = {
      {"E", counted({1000, 1000}, 0)},
      {"F", counted({3, 4}, 12)},
      {"H", counted({int64_t{1} << 40, int64_t{1} << 40}, 5)},
  };
  EXPECT_EQ(estimated("uniform", tensors, in("E", "ij")), 0);
  EXPECT_EQ(estimated("uniform", tensors, sum("j", in("F", "ij"))), 3);
  EXPECT_NEAR(estimated("uniform", tensors, in("H", "ij")), 5, 1e-9);
  EXPECT_NEAR(estimated("uniform", tensors, sum("j", in("H", "ij"))), 5, 1e-6);
}

TEST(ChainEstimator, TakesTheCheapestPath) {
  // One A at each i, and three B at each j: no more than nnz(A)·3 elements.
  InputTensor a = counted({100, 50}, 100), b = counted({50, 40}, 150);
  b.degrees = {{{1}, {0}, 3}};
  const std::map<std::string, InputTensor> tensors = {{"A", a}, {"B", b}};
  EXPECT_EQ(estimated("chain", tensors, times({in("A", "ij"), in("B", "jk")})), 300);
  EXPECT_EQ(estimated("chain", tensors, sum("j", times({in("A", "ij"), in("B", "jk")}))), 300);
  EXPECT_EQ(estimated("chain", tensors, sum("ijk", times({in("A", "ij"), in("B", "jk")}))), 1);
}

TEST(ChainEstimator, AddsBoundsOfUnions) {
  const std::map<std::string, InputTensor> tensors = {{"A", counted({10, 10}, 7)}, {"u", counted({10}, 2)}};
  EXPECT_EQ(estimated("chain", tensors, plus({in("A", "ij"), in("u", "i")})), 27);
}

/// Products, sums and aggregates over matrices A, B and a vector C.
ExpressionPtr random_expression(std::mt19937& random, int depth) {
  const auto pick = [&](int n) { return std::uniform_int_distribution<>(0, n - 1)(random); };
  if (depth == 0 || pick(5) == 0) {
    const std::string letters = "ijk";
    const std::string first(1, letters[pick(3)]), second(1, letters[pick(3)]);
    if (pick(3) == 0) return in("C", first);
    return in(pick(2) == 0 ? "A" : "B", first + second);
  }
  const int kind = pick(4);
  if (kind == 3) {
    const ExpressionPtr child = random_expression(random, depth - 1);
    const std::vector<std::string> indices = free_indices(child);
    return indices.empty() ? child : sum(indices[pick(static_cast<int>(indices.size()))], child);
  }
  const Operator op = kind == 0 ? Operator::kAdd : Operator::kMultiply;
  return make_map(op, {random_expression(random, depth - 1), random_expression(random, depth - 1)});
}

TEST(ChainEstimator, IsNeverBelowTheTruth) {
  std::mt19937 random(7);
  for (int round = 0; round < 1500; ++round) {
    const double density = std::uniform_real_distribution<>(0, 0.7)(random);
    const std::map<std::string, InputTensor> tensors = {{"A", random_entries(random, {4, 4}, density)},
                                                        {"B", random_entries(random, {4, 4}, density)},
                                                        {"C", random_entries(random, {4}, density)}};
    const ExpressionPtr expression = random_expression(random, 3);
    const double truth = estimated("exact", tensors, expression);
    EXPECT_GE(estimated("chain", tensors, expression), truth * (1 - 1e-12)) << text_of(expression);
  }
}

/// Matrices over pairs of five indices, whose extents differ.
struct Matrices {
  IndexSpace space{.names = {"i", "j", "k", "l", "m"}, .sizes = {7, 3, 12, 5, 9}, .originals = {}, .roots = {}};
  std::vector<InputTensor> tensors;
  std::vector<std::vector<int64_t>> indices;

  explicit Matrices(std::mt19937& random) {
    const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
    const int64_t count = 1 + below(4);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t first = below(5), second = (first + 1 + below(4)) % 5;
      indices.push_back({first, second});
      const Dims shape{space.sizes[first], space.sizes[second]};
      InputTensor& tensor = tensors.emplace_back(counted(shape, static_cast<double>(1 + below(shape[0] * shape[1]))));
      if (below(2) == 0) tensor.degrees = {{{1}, {0}, static_cast<double>(1 + below(shape[1]))}};
    }
  }

  /// Of their product, of which `indices` are left.
  StatisticsPtr product(const Estimator& estimator, IndexSet left) const {
    std::vector<StatisticsPtr> factors;
    IndexSet all = 0;
    for (size_t i = 0; i < tensors.size(); ++i) {
      factors.push_back(estimator.relabelled(estimator.of_tensor(tensors[i]), indices[i], space));
      all |= factors.back()->indices;
    }
    return estimator.aggregate(estimator.join(factors, all, space), all & left, space);
  }
};

TEST(ChainEstimator, EstimatesTheSameOneByOneAndOfAllSetsAtOnce) {
  std::mt19937 random(29);
  const EstimatorPtr estimator = chain_estimator();
  for (int round = 0; round < 200; ++round) {
    const Matrices matrices(random);
    const StatisticsPtr asked_often = matrices.product(*estimator, ~IndexSet{0});
    for (IndexSet left = 0; left < 32; ++left) {
      const StatisticsPtr projected = estimator->aggregate(asked_often, asked_often->indices & left, matrices.space);
      EXPECT_DOUBLE_EQ(estimator->estimate(projected, matrices.space),
                       estimator->estimate(matrices.product(*estimator, left), matrices.space))
          << "round " << round << ", indices " << left;
    }
  }
}

TEST(ChainEstimator, JoinsOfTheSameChildrenDifferByTheIndicesAlongWhichTheyRepeat) {
  const EstimatorPtr estimator = chain_estimator();
  const IndexSpace space{.names = {"i", "j"}, .sizes = {10, 4}, .originals = {}, .roots = {}};
  const StatisticsPtr x = estimator->of_tensor(counted({10}, 3));
  EXPECT_EQ(estimator->estimate(estimator->join({x}, 1, space), space), 3);
  EXPECT_EQ(estimator->estimate(estimator->join({x}, 3, space), space), 12);
  EXPECT_EQ(estimator->estimate(estimator->join({x}, 1, space), space), 3);
}

/// The same statistics, counted coordinate by coordinate.
InputTensor with_degrees(const InputTensor& tensor) {
  const Coordinates elements = to_coordinates(*tensor.entries);
  InputTensor out = counted(tensor.shape, static_cast<double>(elements.count()));
  for (int64_t axis = 0; axis < std::ssize(tensor.shape); ++axis) {
    std::map<int64_t, double> along;
    double most = 0;
    for (const int64_t coordinate : elements.axes[axis]) most = std::max(most, ++along[coordinate]);
    std::vector<int64_t> others = all_dims(std::ssize(tensor.shape));
    std::erase(others, axis);
    out.degrees.push_back({{axis}, {}, static_cast<double>(along.size())});
    out.degrees.push_back({others, {axis}, most});
  }
  return out;
}

TEST(ChainEstimator, CountsTheSameInAllFormats) {
  using enum LevelFormat;
  std::mt19937 random(11);
  for (int round = 0; round < 300; ++round) {
    const Dims shape{1 + static_cast<int64_t>(random() % 6), 5, 40};
    const double density = round % 10 == 0 ? 0 : std::uniform_real_distribution<>(0, 0.2)(random);
    // Of an axis much longer than there are entries, these are sorted.
    const bool is_long = round % 3 == 0;
    const InputTensor drawn = is_long ? entries({shape[0], 5, 100'000}, {{0, 1, 99'999}, {0, 3, 7}, {0, 4, 7}})
                                      : random_entries(random, shape, density);
    const std::map<std::string, InputTensor> expected = {{"A", with_degrees(drawn)}};
    for (const auto& formats : std::vector<std::vector<LevelFormat>>{{kSortedList, kSortedList, kSortedList},
                                                                     {kDense, kSortedList, kHash},
                                                                     {kHash, kSortedList, kSortedList},
                                                                     {kSortedList, kBytemap, kSortedList}}) {
      std::vector<int64_t> axes{0, 1, 2};
      std::ranges::shuffle(axes, random);
      InputTensor stored = drawn;
      stored.entries = std::make_shared<Tensor>(reformatted(*drawn.entries, axes, formats));
      for (const ExpressionPtr& expression :
           {in("A", "ijk"), sum("j", in("A", "ijk")), sum("ij", in("A", "ijk")),
            sum("i", times({in("A", "ijk"), in("A", "imn")})), times({in("A", "ijk"), in("A", "ljn")})}) {
        EXPECT_DOUBLE_EQ(estimated("chain", {{"A", stored}}, expression), estimated("chain", expected, expression))
            << text_of(expression);
      }
    }
  }
}

TEST(ExactEstimator, CountsUnionsAndJoins) {
  const std::map<std::string, InputTensor> tensors = {{"A", entries({3, 3}, {{0, 1}, {1, 1}, {2, 0}})},
                                                      {"v", entries({3}, {{1}})}};
  EXPECT_EQ(estimated("exact", tensors, times({in("A", "ij"), in("v", "j")})), 2);
  EXPECT_EQ(estimated("exact", tensors, plus({in("A", "ij"), in("v", "j")})), 4);
  EXPECT_EQ(estimated("exact", tensors, sum("i", times({in("A", "ij"), in("v", "j")}))), 1);
  EXPECT_EQ(estimated("exact", tensors, in("A", "ii")), 1);
}

TEST(Estimators, AreFoundByNameAndOpenToOthers) {
  EXPECT_EQ(estimator_named("chain")->name(), "chain");
  EXPECT_THROW(estimator_named("magic"), PlanError);
  EXPECT_THROW(register_estimator(uniform_estimator()), PlanError);
}

}  // namespace
}  // namespace joinsum::sparse::statistics

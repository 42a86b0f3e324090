#include "kernels/pairs/winners.h"

#include <limits>

#include <gtest/gtest.h>

namespace joinsum::kernels::pairs {
namespace {

using semiring::Join;
using semiring::Term;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

at::Tensor joined(Join join, const at::Tensor& a, const at::Tensor& b) {
  switch (join) {
    case Join::kMul:
      return a * b;
    case Join::kSub:
      return a - b;
    case Join::kMax:
      return at::maximum(a, b);
    case Join::kSquaredDifference:
      return (a - b) * (a - b);
    case Join::kAbsDifference:
      return (a - b).abs();
    default:
      return a + b;
  }
}

/// left[i, j] ⊗ right[j, k], with the extreme along j.
struct Drawn {
  Drawn(Join of_join, bool least, at::ScalarType type, double most)
      : join(of_join),
        left((at::randn({37, 300}, at::kDouble) * most).round().to(type)),
        right((at::randn({41, 300}, at::kDouble) * most).round().to(type).t()),
        x(joined(join, left.unsqueeze(2), right.unsqueeze(0))),
        problem{join,
                least,
                {left, "ij"},
                {right, "jk"},
                {least ? x.amin(1) : x.amax(1), "ik"},
                "j",
                {{'i', 37}, {'j', 300}, {'k', 41}}} {}

  at::Tensor ties() const { return x == problem.extreme.array.unsqueeze(1); }

  Join join;
  at::Tensor left, right, x;
  WinnerProblem problem;
};

constexpr Join kJoins[] = {Join::kAdd, Join::kSub,          Join::kMul, Join::kSquaredDifference,
                           Join::kMax, Join::kAbsDifference};

TEST(Winners, AreTheFirstPositionsAndTheNumberOfTies) {
  at::manual_seed(50);
  for (const auto type : {at::kFloat, at::kDouble, at::kInt, at::kLong}) {
    for (const Join join : kJoins) {
      for (const bool least : {false, true}) {
        const Drawn drawn(join, least, type, 1e4);
        const auto found = winners(drawn.problem);
        const bool rare = drawn.ties().sum().item<int64_t>() <= 37 * 41 * 33 / 32;
        EXPECT_TRUE(found || !rare);
        if (!found) continue;
        const at::Tensor at = at::arange(300).view({1, -1, 1});
        const at::Tensor positions = at::full({37, 41}, 1000, at::kLong), numbers = at::arange(300);
        take_positions(*found, numbers.const_data_ptr<int64_t>(), {positions, "ik"});
        EXPECT_TRUE(at::equal(positions, at::where(drawn.ties(), at, 1000).amin(1)));
        if (!at::isFloatingType(type)) continue;
        const at::Tensor counts = at::zeros({41, 37}, type);
        add_counts(*found, {counts, "ki"});
        EXPECT_TRUE(at::equal(counts.t(), drawn.ties().sum(1).to(type)));
      }
    }
  }
}

TEST(Winners, GetTheTermsOfTies) {
  at::manual_seed(51);
  for (const Join join : kJoins) {
    const Drawn drawn(join, false, at::kFloat, 1e4);
    const auto found = winners(drawn.problem);
    if (!found) continue;
    const at::Tensor weight = at::randn({37, 41});
    const TermProblem problem{Term::kTied,         join, {drawn.left, "ij"},   drawn.problem.extreme, {weight, "ik"},
                              {drawn.right, "jk"}, "k",  drawn.problem.extents};
    const at::Tensor by_loops = at::zeros({37, 300}), by_winners = at::ones({37, 300});
    ASSERT_TRUE(adds_terms(problem, {by_loops, "ij"}));
    ASSERT_TRUE(adds_tied(problem, *found, {by_winners, "ij"}));
    EXPECT_TRUE(at::allclose(by_winners - 1, by_loops, 1e-4, 1e-4 * by_loops.abs().max().item<double>()));
  }
}

TEST(Winners, AreNowhereWhereAnotherPartHoldsTheExtreme) {
  Drawn drawn(Join::kAdd, false, at::kFloat, 1e4);
  drawn.problem.extreme.array[3][4] += 1000;
  const auto found = winners(drawn.problem);
  ASSERT_TRUE(found);
  const at::Tensor counts = at::zeros({37, 41});
  add_counts(*found, {counts, "ik"});
  EXPECT_EQ(counts[3][4].item<double>(), 0);
  drawn.problem.extreme.array[3][4] -= 2000;  // what is compared with is no extreme
  EXPECT_FALSE(winners(drawn.problem));
}

TEST(Winners, AreLeftToLoopsAmongManyTiesAndNotNumbers) {
  EXPECT_FALSE(winners(Drawn(Join::kAdd, false, at::kFloat, 1).problem));
  Drawn drawn(Join::kMul, false, at::kFloat, 1e4);
  drawn.problem.left.array = drawn.left.clone();
  drawn.problem.left.array[3][4] = kInfinity;  // times 0
  EXPECT_FALSE(winners(drawn.problem));
}

TEST(Winners, OfInfinitiesAreWhereTheyAre) {
  at::manual_seed(52);
  Drawn drawn(Join::kAdd, false, at::kFloat, 1e4);
  drawn.left[5].slice(0, 1).fill_(-kInfinity);
  drawn.right.select(1, 6).select(0, 0).fill_(-kInfinity);
  drawn.x = joined(Join::kAdd, drawn.left.unsqueeze(2), drawn.right.unsqueeze(0));
  drawn.problem.extreme.array = drawn.x.amax(1);
  const auto found = winners(drawn.problem);
  ASSERT_TRUE(found);
  const at::Tensor counts = at::zeros({37, 41});
  add_counts(*found, {counts, "ik"});
  EXPECT_TRUE(at::equal(counts, drawn.ties().sum(1).to(at::kFloat)));
  EXPECT_EQ(counts[5][6].item<double>(), 300);
}

}  // namespace
}  // namespace joinsum::kernels::pairs

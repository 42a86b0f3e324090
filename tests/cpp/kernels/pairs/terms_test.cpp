#include "kernels/pairs/terms.h"

#include <array>
#include <random>

#include <gtest/gtest.h>

namespace joinsum::kernels::pairs {
namespace {

using semiring::Join;
using semiring::Term;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

at::Tensor joined(Join join, const at::Tensor& a, const at::Tensor& b) {
  switch (join) {
    case Join::kMul:
      return a * b;
    case Join::kAdd:
      return a + b;
    case Join::kSub:
      return a - b;
    case Join::kReversedSub:
      return b - a;
    case Join::kDiv:
      return a / b;
    case Join::kReversedDiv:
      return b / a;
    case Join::kMax:
      return at::maximum(a, b);
    case Join::kMin:
      return at::minimum(a, b);
    case Join::kSquaredDifference:
      return (a - b) * (a - b);
    default:
      return (a - b).abs();
  }
}

/// 0 where a < b, 1/2 where they are equal, else 1.
at::Tensor above(const at::Tensor& a, const at::Tensor& b) {
  return 1 - 0.5 * (a < b).to(a.scalar_type()) - 0.5 * (a <= b).to(a.scalar_type());
}

at::Tensor slope(Join join, const at::Tensor& own, const at::Tensor& right) {
  switch (join) {
    case Join::kMul:
      return right.expand_as(own + right);
    case Join::kMax:
      return above(own, right);
    case Join::kMin:
      return above(right, own);
    case Join::kSquaredDifference:
      return own - right;
    case Join::kAbsDifference:
      return (own > right).to(own.scalar_type()) - (own < right).to(own.scalar_type());
    default:
      return at::ones_like(own + right);
  }
}

/// Operands with letters b (batch), r, k and c, some of which they lack.
struct Drawn {
  Drawn(std::mt19937_64& random, Term of_term, Join join, at::ScalarType type, bool special)
      : term(of_term), problem{of_term, join, {}, {}, {}, {}, "k", {}} {
    const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
    problem.extents = {{'b', 1 + below(3)}, {'r', 1 + below(20)}, {'k', 1 + below(600)}, {'c', 8 + below(90)}};
    const auto tensor = [&](const std::string& letters) {
      Dims shape;
      for (const char letter : letters) shape.push_back(problem.extents.at(letter));
      at::Tensor out = at::randint(-4, 5, shape, at::kDouble) / (at::isIntegralType(type, false) ? 1 : 2);
      if (special) {
        for (const double each : {kNaN, kInfinity, -kInfinity}) out.view(-1)[below(out.numel())] = each;
      }
      out = out.to(type);
      // Some lie the other way round.
      return Lettered{below(2) == 0 ? out : out.transpose(0, -1).contiguous().transpose(0, -1), letters};
    };
    const bool joins_own = term != Term::kPosition && term != Term::kCount;
    problem.right = tensor(below(2) == 0 ? "bkc" : "kc");
    problem.left = tensor(below(2) == 0 ? "brk" : "rk");
    if (term == Term::kSlope) problem.left = {};
    if (joins_own) problem.weight = tensor(below(3) == 0 ? "br" : "brk");
    problem.own = tensor(joins_own ? "brc" : "bcr");
    const at::Tensor x = aligned(joins_own ? problem.own : problem.left), right = aligned(problem.right);
    if (!joins_own && !special) {
      const at::Tensor most = joined(join, x, right).amax(2).transpose(1, 2);
      problem.own.array = most.expand(problem.own.array.sizes()).contiguous();
    }
  }

  /// With axes b, r, k and c.
  at::Tensor aligned(const Lettered& x) const {
    if (x.letters == "bcr") return x.array.transpose(1, 2).unsqueeze(2);
    at::Tensor array = x.array;
    for (size_t i = 0; i < 4; ++i) {
      if (x.letters.find("brkc"[i]) == std::string::npos) array = array.unsqueeze(static_cast<int64_t>(i));
    }
    return array;
  }

  at::Tensor wanted() const {
    const at::Tensor own = aligned(problem.own), right = aligned(problem.right);
    if (term == Term::kPosition || term == Term::kCount) {
      const at::Tensor x = joined(problem.join, aligned(problem.left), right);
      if (term == Term::kCount) return (x == own).to(x.scalar_type()).sum({2});
      const at::Tensor at = at::arange(x.size(2), at::kLong).view({1, 1, -1, 1});
      return at::where((x == own).logical_or(x != x), at, 1000000).amin(2);
    }
    const at::Tensor weight = aligned(problem.weight);
    const at::Tensor x = joined(problem.join, own, right);
    at::Tensor terms = weight.expand_as(x + weight);
    if (term == Term::kTied) terms = weight * (x == aligned(problem.left)).to(x.scalar_type());
    if (term == Term::kShare) terms = weight * (x - aligned(problem.left)).exp();
    return (terms * slope(problem.join, own, right)).expand_as(x + weight).sum({2});
  }

  Term term;
  TermProblem problem;
};

constexpr std::array kTerms{Term::kPosition, Term::kCount, Term::kTied, Term::kShare, Term::kSlope};
constexpr std::array kJoins{Join::kMul,         Join::kAdd, Join::kSub, Join::kReversedSub,       Join::kDiv,
                            Join::kReversedDiv, Join::kMax, Join::kMin, Join::kSquaredDifference, Join::kAbsDifference};

/// Equal up to rounding, relative to the largest number; infinities and NaN where they are wanted.
bool near(const at::Tensor& got, const at::Tensor& wanted, double tolerance) {
  const at::Tensor finite = wanted.isfinite();
  const double largest = at::where(finite, wanted, 0).abs().max().item<double>();
  const at::Tensor close = (got - wanted).abs() <= tolerance * std::max(largest, 1.0);
  const at::Tensor same = (got == wanted).logical_or(got.isnan().logical_and(wanted.isnan()));
  return same.logical_or(close.logical_and(finite)).all().item<bool>();
}

TEST(Terms, AreTorchsOnAnyLettersAndStrides) {
  std::mt19937_64 random(1);
  at::manual_seed(1);
  int64_t run = 0;
  for (const Term term : kTerms) {
    for (const Join join : kJoins) {
      for (int i = 0; i < 16; ++i) {
        const auto type = std::array{at::kFloat, at::kDouble, at::kInt, at::kLong}[i % 4];
        const bool integers = i % 4 >= 2, divides = join == Join::kDiv || join == Join::kReversedDiv;
        if (integers && (term != Term::kPosition || divides)) continue;
        const Drawn drawn(random, term, join, type, !integers && i % 8 >= 4);
        std::vector<int64_t> positions(static_cast<size_t>(drawn.problem.extents.at('k')));
        for (size_t k = 0; k < positions.size(); ++k) positions[k] = static_cast<int64_t>(k);
        const at::Tensor out = term == Term::kPosition ? at::full(drawn.wanted().sizes(), 1000000, at::kLong)
                                                       : at::zeros(drawn.wanted().sizes(), type);
        if (!adds_terms(drawn.problem, {out, "brc"}, positions.data())) continue;
        ++run;
        ASSERT_TRUE(near(out, drawn.wanted(), type == at::kFloat ? 1e-5 : 1e-12))
            << "term " << static_cast<int>(term) << ", join " << static_cast<int>(join) << ", draw " << i;
      }
    }
  }
  EXPECT_GT(run, 300);
}

TEST(Terms, AreAddedToWhatIsThere) {
  const TermProblem problem{Term::kCount,
                            Join::kAdd,
                            {at::ones({3, 8}), "rc"},
                            {at::ones({3, 5}), "rk"},
                            {},
                            {at::zeros({5, 8}), "kc"},
                            "k",
                            {{'r', 3}, {'k', 5}, {'c', 8}}};
  const at::Tensor out = at::ones({3, 8});
  EXPECT_TRUE(adds_terms(problem, {out, "rc"}));
  EXPECT_TRUE(at::equal(out, at::full({3, 8}, 6.0)));
}

TEST(Terms, OfOtherDtypesAreLeftToOthers) {
  for (const auto type : {at::kBFloat16, at::kHalf, at::kShort, at::kComplexFloat, at::kInt}) {
    const auto ones = [&](Dims shape) { return at::ones(shape, type); };
    const TermProblem problem{Term::kCount,         Join::kAdd, {ones({3, 8}), "rc"},          {ones({3, 5}), "rk"}, {},
                              {ones({5, 8}), "kc"}, "k",        {{'r', 3}, {'k', 5}, {'c', 8}}};
    EXPECT_FALSE(adds_terms(problem, {ones({3, 8}), "rc"}));
  }
}

}  // namespace
}  // namespace joinsum::kernels::pairs

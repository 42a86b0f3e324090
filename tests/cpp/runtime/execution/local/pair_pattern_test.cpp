#include "runtime/execution/local/pair_pattern.h"

#include <gtest/gtest.h>

#include "ia/text.h"

namespace joinsum::runtime::execution::local {
namespace {

using kernels::semiring::Join;
using kernels::semiring::Term;
using kernels::table::Kernel;

/// A step: what it reads, or a kernel and the steps before that it reads; and the letters of its axes.
struct Line {
  std::string name;
  std::vector<size_t> operands;
  std::string letters;
};

/// Programs over arrays A[i, k], B[k, j], T[j, k], the transpose of B, Z and G[i, j], and positions P[k].
class PairPatterns : public ::testing::Test {
 protected:
  TileProgram program(const std::string& reduction, const std::vector<Line>& lines,
                      const std::vector<size_t>& reduced) const {
    TileProgram out(Kernel::parse(reduction));
    const auto names = ia::node_names(plan_);
    for (const auto& [name, operands, letters] : lines) {
      if (!operands.empty()) {
        out.add(Kernel::parse(name), operands, letters, {7, 9, 8});
        continue;
      }
      for (const auto& node : plan_.order()) {
        if (names.at(node.get()) == name) out.add_array(letters, {node.get(), {}});
      }
    }
    out.reduce(reduced);
    return out;
  }

  std::string pattern(const std::string& reduction, const std::vector<Line>& lines,
                      const std::vector<size_t>& reduced) const {
    const auto found = pair_pattern(program(reduction, lines, reduced));
    return found ? text(found->term, found->join) : "none";
  }

  static std::string text(Term term, Join join) {
    return concatenate("term ", static_cast<int>(term), ", join ", static_cast<int>(join));
  }

  ia::Plan plan_ = ia::parse(R"(ia on 1
input A: f32[7,8]<> on 1 ()
input B: f32[8,9]<> on 1 ()
input Z: f32[7,9]<> on 1 ()
input G: f32[7,9]<> on 1 ()
input P: i64[8]<> on 1 ()
t0 = map[(); arrange[ab->ba]](B)
output O = join[; ; contract[ab,cb->ac]](A, t0)
output Y = join[; ; add](Z, G)
output Q = map[(); id](P)
)");
  const std::string first_ = "expression[2, where(x0==x1,1,x0!=x0)]";
};

TEST_F(PairPatterns, ArePositionsOfAnExtreme) {
  const auto of = [&](const std::string& place) {
    return pattern("expression_min[ijk,k->ij:" + place + "]",
                   {{"A", {}, "ik"},
                    {"B", {}, "kj"},
                    {"add", {0, 1}, "ijk"},
                    {"Z", {}, "ij"},
                    {first_, {2, 3}, "ijk"},
                    {"cast[i64]", {4}, "ijk"},
                    {"P", {}, "k"}},
                   {5, 6});
  };
  EXPECT_EQ(of("where(x0==1,x1,8)"), text(Term::kPosition, Join::kAdd));
  EXPECT_EQ(of("where(x0==1,x1,x1+1)"), "none");
}

TEST_F(PairPatterns, AreNumbersOfTies) {
  const auto of = [&](const std::string& letters) {
    return pattern(
        "reduce_add[ijk->" + letters + "]",
        {{"A", {}, "ik"}, {"B", {}, "kj"}, {"mul", {0, 1}, "ijk"}, {"Z", {}, "ij"}, {"equal", {2, 3}, "ijk"}}, {4});
  };
  EXPECT_EQ(of("ij"), text(Term::kCount, Join::kMul));
  EXPECT_EQ(of("ik"), "none");
}

/// For each operand; where B is the one that stays, differences are the other way round.
TEST_F(PairPatterns, AreGradientsOfExtremes) {
  const auto of = [&](const std::string& join, const std::string& letters) {
    return pattern("reduce_add[ijk->" + letters + "]",
                   {{"A", {}, "ik"},
                    {"B", {}, "kj"},
                    {join, {0, 1}, "ijk"},
                    {"Z", {}, "ij"},
                    {"equal", {2, 3}, "ijk"},
                    {"G", {}, "ij"},
                    {"mul", {5, 4}, "ijk"}},
                   {6});
  };
  EXPECT_EQ(of("add", "ik"), text(Term::kTied, Join::kAdd));
  EXPECT_EQ(of("sub", "ik"), text(Term::kTied, Join::kSub));
  EXPECT_EQ(of("sub", "kj"), text(Term::kTied, Join::kReversedSub));
  EXPECT_EQ(of("max", "ik"), "none");  // its slope lacks
}

/// The slope may read B where the join reads its transpose.
TEST_F(PairPatterns, AreGradientsWithSlopes) {
  const auto of = [&](const std::string& join, const std::string& slope, bool reverses) {
    return pattern("contract[ijk,ijk->ik]",
                   {{"A", {}, "ik"},
                    {"t0", {}, "jk"},
                    {join, {0, 1}, "ijk"},
                    {"Z", {}, "ij"},
                    {"equal", {2, 3}, "ijk"},
                    {"G", {}, "ij"},
                    {"mul", {5, 4}, "ijk"},
                    {"B", {}, "kj"},
                    {slope, reverses ? std::vector<size_t>{7, 0} : std::vector<size_t>{0, 7}, "ijk"}},
                   {6, 8});
  };
  EXPECT_EQ(of("max", "above", false), text(Term::kTied, Join::kMax));
  EXPECT_EQ(of("max", "above", true), "none");
  EXPECT_EQ(of("min", "above", true), text(Term::kTied, Join::kMin));
  EXPECT_EQ(of("squared_difference", "sub", false), text(Term::kTied, Join::kSquaredDifference));
  EXPECT_EQ(of("squared_difference", "add", false), "none");
}

TEST_F(PairPatterns, AreGradientsOfLogarithms) {
  const auto of = [&](const std::string& share) {
    return pattern("contract[ijk,kj->ik]",
                   {{"A", {}, "ik"},
                    {"B", {}, "kj"},
                    {"mul", {0, 1}, "ijk"},
                    {"Z", {}, "ij"},
                    {"sub", {2, 3}, "ijk"},
                    {share, {4}, "ijk"},
                    {"G", {}, "ij"},
                    {"mul", {6, 5}, "ijk"}},
                   {7, 1});
  };
  EXPECT_EQ(of("exp"), text(Term::kShare, Join::kMul));
  EXPECT_EQ(of("tanh"), "none");
}

TEST_F(PairPatterns, AreGradientsOfDifferences) {
  const auto of = [&](const std::vector<size_t>& order, const std::string& letters) {
    return pattern("contract[ij,ijk->" + letters + "]",
                   {{"A", {}, "ik"}, {"B", {}, "kj"}, {"G", {}, "ij"}, {"sub", order, "ijk"}, {"sign", {3}, "ijk"}},
                   {2, 4});
  };
  EXPECT_EQ(of({0, 1}, "ik"), text(Term::kSlope, Join::kAbsDifference));
  EXPECT_EQ(of({1, 0}, "kj"), text(Term::kSlope, Join::kAbsDifference));
  EXPECT_EQ(of({1, 0}, "ik"), "none");
  EXPECT_EQ(of({0, 1}, "i"), "none");  // no operand stays
}

TEST_F(PairPatterns, RunOnArraysThatLieAnyhow) {
  const TileProgram gradient = program(
      "contract[ij,ijk->ik]",
      {{"A", {}, "ik"}, {"B", {}, "kj"}, {"G", {}, "ij"}, {"sub", {0, 1}, "ijk"}, {"sign", {3}, "ijk"}}, {2, 4});
  const at::Tensor a = at::randn({8, 7}).t(), b = at::randn({9, 8}).t(), g = at::randn({1, 1}).expand({7, 9});
  const at::Tensor wanted = ((a.unsqueeze(2) - b.unsqueeze(0)).sgn() * g.unsqueeze(1)).sum(2);
  const at::Tensor out = at::ones({7, 8});
  FoundWinners winners;
  EXPECT_TRUE(runs_pattern(*pair_pattern(gradient), gradient, {a, b, g}, winners, out, false));
  EXPECT_TRUE(at::allclose(out, wanted));
  EXPECT_TRUE(runs_pattern(*pair_pattern(gradient), gradient, {a, b, g}, winners, out, true));
  EXPECT_TRUE(at::allclose(out, 2 * wanted));
}

}  // namespace
}  // namespace joinsum::runtime::execution::local

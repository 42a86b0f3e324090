#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "sparse/programs.h"

namespace joinsum::sparse::program {
namespace {

using namespace sparse::testing;  // NOLINT: the tests' own words

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Any expression of at most `depth` levels.
ExpressionPtr drawn(std::mt19937& random, int depth) {
  const auto below = [&](int count) { return static_cast<int>(random() % static_cast<unsigned>(count)); };
  if (depth == 0 || below(4) == 0) {
    if (below(3) > 0) return in(std::string("x") + std::to_string(below(3)), std::string("abc").substr(0, below(4)));
    const std::vector<double> values = {0, -2.5, 1e-300, 0.1, 3e20, kInfinity, -kInfinity};
    return make_literal(values[below(static_cast<int>(values.size()))]);
  }
  const auto& all = operators::all_operators();
  const Operator op = all[below(static_cast<int>(all.size()))];
  if (operators::aggregates(op) && below(2) == 0) {
    return reduce(op, std::string("xyz").substr(0, 1 + below(3)), drawn(random, depth - 1));
  }
  std::vector<ExpressionPtr> children;
  const int most = operators::takes(op, 3) ? 3 : operators::takes(op, 2) ? 2 : 1;
  const int least = operators::takes(op, 1) ? 1 : 2;
  for (int i = least + below(most - least + 1); i > 0; --i) children.push_back(drawn(random, depth - 1));
  return make_map(op, std::move(children));
}

TEST(ParseExpression, ReadsWhatIsPrinted) {
  std::mt19937 random(7);
  for (int i = 0; i < 2000; ++i) {
    const ExpressionPtr expression = drawn(random, 4);
    const std::string text = text_of(expression);
    const ExpressionPtr again = parse_expression(text);
    EXPECT_EQ(text_of(again), text);
    EXPECT_TRUE(same(again, expression)) << text;
  }
}

TEST(ParseExpression, ReadsTensorsThatAreNamedAsOperators) {
  EXPECT_EQ(parse_expression("(exp[i] + min[i,j])")->children[1]->tensor, "min");
  EXPECT_EQ(parse_expression("min[i](min[i])")->child()->tensor, "min");
}

TEST(ParseExpression, NamesThePlaceOfWhatIsNone) {
  for (const char* text : {"", "x0", "x0[a", "(x0[a] + x1[a] * x2[a])", "+[a](x0[a], x1[a])", "exp()", "x0[a] x1[a]",
                           "pow(x0[a])", "gt[a](x0[a])", "(x0[a] ? x1[a])"}) {
    EXPECT_THROW(parse_expression(text), PlanError) << text;
  }
  EXPECT_THROW(parse_expression(std::string(1000, '(') + "1" + std::string(1000, ')')), PlanError);
}

}  // namespace
}  // namespace joinsum::sparse::program

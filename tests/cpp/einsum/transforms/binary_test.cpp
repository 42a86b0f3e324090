#include "einsum/transforms/binary.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "einsum/interpret.h"
#include "einsum/text.h"
#include "random_einsums.h"

namespace joinsum::einsum::transforms {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

std::string error_of(const Plan& plan, const std::map<std::string, Path>& paths) {
  try {
    binary(plan, paths);
  } catch (const PlanError& error) {
    return error.what();
  }
  return "no error";
}

Plan chain(const std::string& join) {
  return parse("einsum\ninput A: f64[2,3]\ninput B: f64[3,4]\ninput C: f64[4,5]\noutput Z = einsum[ij,jk,kl->il; " +
               join + "; add](A, B, C)");
}

TEST(EinsumBinary, JoinsInTheGivenOrderAndAggregatesEarly) {
  EXPECT_EQ(print(binary(chain("mul"), {{"t0", {{1, 2}, {0, 1}}}})),
            "einsum\n"
            "input A: f64[2,3]\n"
            "input B: f64[3,4]\n"
            "input C: f64[4,5]\n"
            "t0 = einsum[jk,kl->jl; mul; add](B, C): f64[3,5]\n"
            "t1 = einsum[ij,jl->il; mul; add](A, t0): f64[2,5]\n"
            "output Z = t1\n");
}

TEST(EinsumBinary, WaitsWithAggregationWhereTheJoinDoesNotDistribute) {
  EXPECT_EQ(print(binary(chain("sub"))),
            "einsum\n"
            "input A: f64[2,3]\n"
            "input B: f64[3,4]\n"
            "input C: f64[4,5]\n"
            "t0 = einsum[ij,jk->ijk; sub; add](A, B): f64[2,3,4]\n"
            "t1 = einsum[ijk,kl->il; sub; add](t0, C): f64[2,5]\n"
            "output Z = t1\n");
}

TEST(EinsumBinary, TakesAnExpressionApartWhereItsPartsReadTwoOperands) {
  const auto apart = [](const std::string& expression) {
    const std::string inputs = "input A: f64[2,3]\ninput B: f64[3,4]\ninput C: f64[4,5]\n";
    const std::string text = print(binary(parse("einsum\n" + inputs + "output Z = einsum[ij,jk,kl->il; expression[3, " +
                                                expression + "]; max](A, B, C)")));
    return text.substr(text.find("t0"));
  };
  EXPECT_EQ(apart("exp(x0-x1)*x2+1"),
            "t0 = einsum[ij,jk->ijk; expression[2, exp(x0-x1)]; add](A, B): f64[2,3,4]\n"
            "t1 = einsum[kl,ijk->il; expression[2, x1*x0+1]; max](C, t0): f64[2,5]\n"
            "output Z = t1\n");
  EXPECT_EQ(apart("where(x0,x1,x2)"),
            "t0 = einsum[ij,jk->ijk; expression[2, where(x0,x1,0)]; add](A, B): f64[2,3,4]\n"
            "t1 = einsum[ij,kl->ijkl; expression[2, where(x0,0,x1)]; add](A, C): f64[2,3,4,5]\n"
            "t2 = einsum[ijk,ijkl->il; add; max](t0, t1): f64[2,5]\n"
            "output Z = t2\n");
}

TEST(EinsumBinary, WaitsWithAggregatingNothingThatTheJoinWouldLose) {
  const Plan plan =
      parse("einsum\ninput A: f64[0]\ninput B: f64[]\ninput C: f64[]\noutput Z = einsum[i,,->; min; min](A, B, C)");
  const auto computed = interpret(binary(plan), {{"A", {{0}, {}}}, {"B", {{}, {1}}}, {"C", {{}, {2}}}});
  EXPECT_EQ(computed.at("Z").values, std::vector<double>{kInf});
}

TEST(EinsumBinary, JoinsAllBeforeAnInfinityIsAggregatedAwayWhereNaNsStay) {
  const auto apart = [](const std::string& text) {
    const Plan plan = parse(text);
    std::unordered_map<const Node*, NodePtr> made;
    return std::pair(may_lose_nans(plan),
                     interpret(binary(plan, {}, made, AggregationStep::kWhereNaNsStay),
                               {{"A", {{1}, {-kInf}}}, {"B", {{1, 2}, {kInf, 1}}}, {"C", {{2}, {0, 0}}}}));
  };
  const std::string inputs = "einsum\ninput A: f64[1]\ninput B: f64[1,2]\ninput C: f64[2]\n";
  const auto [may, made] = apart(inputs + "output Z = einsum[i,ij,j->i; add; min](A, B, C)");
  EXPECT_TRUE(may);
  EXPECT_TRUE(std::isnan(made.at("Z").values.at(0)));
  EXPECT_FALSE(apart(inputs + "output Z = einsum[i,ij,j->i; max; min](A, B, C)").first);
  EXPECT_FALSE(
      apart(inputs + "t0 = einsum[i,ij->i; add; min](A, B)\noutput Z = einsum[i,j->i; add; min](t0, C)").first);
}

TEST(EinsumBinary, PathsThatDoNotFitAreRefused) {
  EXPECT_EQ(error_of(chain("sub"), {{"t0", {{1, 2}, {0, 1}}}}),
            "binary: this join is taken from the left: vertex=t0, join=sub, step=(1, 2)");
  EXPECT_EQ(error_of(chain("mul"), {{"t0", {{1, 2}}}}),
            "binary: a path has one step less than operands: vertex=t0, steps=1, operands=3");
  EXPECT_EQ(error_of(chain("mul"), {{"t0", {{1, 3}, {0, 1}}}}),
            "binary: a step joins two of the operands that are left: vertex=t0, step=(1, 3), left=3");
  EXPECT_EQ(error_of(chain("mul"), {{"t7", {}}}),
            "binary: a path for a vertex that has no more than two operands, or is not there: paths=1, used=0");
}

TEST(EinsumBinary, RandomPlansKeepTheirMeaning) {
  RandomEinsums random(7);
  for (int round = 0; round < 300; ++round) {
    const Plan plan = random.plan({});
    const auto contents = random.contents(plan, true);
    ASSERT_EQ(interpret(binary(plan), contents), interpret(plan, contents)) << plan.text();
  }
}

TEST(EinsumBinary, RandomPlansOfExpressionsKeepTheirMeaning) {
  RandomEinsums random(8);
  for (int round = 0; round < 300; ++round) {
    const Plan plan = random.plan({.differentiable = true, .expressions = true, .vertices = 2});
    const auto contents = random.contents(plan, true);
    ASSERT_EQ(interpret(binary(plan), contents), interpret(plan, contents)) << plan.text();
    ASSERT_EQ(print(parse(print(plan))), print(plan));
  }
}

}  // namespace
}  // namespace joinsum::einsum::transforms

#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include "kernels/reference/reference.h"
#include "kernels/table/expression_kernel.h"
#include "kernels/table/table.h"

namespace joinsum::kernels::expression {

using reference::Array;
using table::expression_kernel;
using table::flops;
using table::flops_per_element;
using table::Kernel;
using table::operands_of;
using table::result_dtype;
using table::row_of;

namespace {

std::string printed(const std::string& text, int64_t operands = 3) { return Expression::parse(text, operands).text(); }

std::string error_of(const std::string& text, int64_t operands = 2) {
  try {
    Expression::parse(text, operands);
  } catch (const PlanError& error) {
    return error.what();
  }
  return "no error";
}

double at(const std::string& text, const std::vector<double>& x) {
  return Expression::parse(text, static_cast<int64_t>(x.size())).value(x.data());
}

TEST(Expression, PrintsWithoutBlanksAndWithTheFewestBrackets) {
  EXPECT_EQ(printed("exp(x - y) * 2"), "exp(x0-x1)*2");
  EXPECT_EQ(printed("((x) + (y * z))"), "x0+x1*x2");
  EXPECT_EQ(printed("(x + y) * z"), "(x0+x1)*x2");
  EXPECT_EQ(printed("x - (y - z)"), "x0-(x1-x2)");
  EXPECT_EQ(printed("x / (y / z)"), "x0/(x1/x2)");
  EXPECT_EQ(printed("-(x + 1)"), "-(x0+1)");
  EXPECT_EQ(printed("- x * y"), "-x0*x1");
  EXPECT_EQ(printed("x - -2"), "x0--2");
  EXPECT_EQ(printed("where(x <= y, 1e-05, -inf)"), "where(x0<=x1,1e-05,-inf)");
  EXPECT_EQ(printed("(x < y) == (y < z)"), "(x0<x1)==(x1<x2)");
  EXPECT_EQ(printed("pow(x2, 0.5)"), "pow(x2,0.5)");
}

TEST(Expression, HasTheValuesOfArithmetic) {
  EXPECT_EQ(at("x - y - 1", {5, 2}), 2);
  EXPECT_EQ(at("x / y / 2", {12, 3}), 2);
  EXPECT_EQ(at("2 + 3 * -x", {4}), -10);
  EXPECT_EQ(at("where(x >= y, x, y) + (x != y)", {3, 7}), 8);
  EXPECT_EQ(at("where(x == x, 1, 2)", {NAN}), 2);
  EXPECT_DOUBLE_EQ(at("exp(x) * log(y) + sqrt(z) + pow(x, y)", {1.5, 2, 9}),
                   std::exp(1.5) * std::log(2) + 3 + std::pow(1.5, 2));
  EXPECT_DOUBLE_EQ(at("tanh(x) - sigmoid(x)", {0.3}), std::tanh(0.3) - 1 / (1 + std::exp(-0.3)));
}

TEST(Expression, ErrorsMarkThePlace) {
  EXPECT_EQ(error_of("x + q"),
            "expression: no such operand; they are x0, x1, ... or x, y, z: name=q\n  x + q\n      ^");
  EXPECT_EQ(error_of("x + z"), "expression: no such operand: name=z, operands=2\n  x + z\n      ^");
  EXPECT_EQ(error_of("sin(x)"),
            "expression: no such function: name=sin, there are pow, exp, log, sqrt, tanh, sigmoid, where\n"
            "  sin(x)\n  ^");
  EXPECT_EQ(error_of("pow(x)"),
            "expression: a function has another number of arguments: name=pow, given=1, wanted=2\n  pow(x)\n  ^");
  EXPECT_EQ(error_of("x + "), "expression: expected a number, an operand, a function or `(`\n  x + \n      ^");
  EXPECT_EQ(error_of("(x"), "expression: expected `)`\n  (x\n    ^");
  EXPECT_EQ(error_of("x y"), "expression: expected the end of the expression\n  x y\n    ^");
  EXPECT_EQ(error_of("x < y < 1").substr(0, 40), "expression: compare two values at once\n ");
  EXPECT_EQ(error_of(std::string(3000, '(') + "x").substr(0, 47), "expression: an expression of too many brackets ");
  std::string sum = "x";
  for (int i = 0; i < 3000; ++i) sum += "+x";
  EXPECT_EQ(error_of(sum).substr(0, 47), "expression: an expression of too many functions");
}

/// A random expression of two operands, defined wherever these lie between 0.5 and 2.
Expression random_expression(std::mt19937_64& random, int depth) {
  const auto draw = [&](size_t below) { return random() % below; };
  const auto inner = [&] { return random_expression(random, depth - 1); };
  if (depth == 0 || draw(6) == 0) {
    if (draw(4) == 0) return Expression::of_number(static_cast<double>(draw(7)) / 2 - 1);
    return Expression::of_operand(static_cast<int64_t>(draw(2)));
  }
  const auto positive = [&](Expression e) {
    return Expression{Function::kAdd, 0, 0, {{Function::kMultiply, 0, 0, {e, e}}, Expression::of_number(0.5)}};
  };
  switch (draw(10)) {
    case 0:
      return {Function::kAdd, 0, 0, {inner(), inner()}};
    case 1:
      return {Function::kSubtract, 0, 0, {inner(), inner()}};
    case 2:
      return {Function::kMultiply, 0, 0, {inner(), inner()}};
    case 3:
      return {Function::kDivide, 0, 0, {inner(), positive(inner())}};
    case 4:
      return {Function::kTanh, 0, 0, {inner()}};
    case 5:
      return {Function::kSigmoid, 0, 0, {inner()}};
    case 6:
      return {Function::kLog, 0, 0, {positive(inner())}};
    case 7:
      return {Function::kSqrt, 0, 0, {positive(inner())}};
    case 8:
      return {Function::kWhere, 0, 0, {{Function::kLess, 0, 0, {inner(), inner()}}, inner(), inner()}};
    default:
      return {
          Function::kPower, 0, 0, {positive({Function::kTanh, 0, 0, {inner()}}), {Function::kTanh, 0, 0, {inner()}}}};
  }
}

TEST(Expression, RandomOnesReadBack) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 500; ++round) {
    const Expression e = random_expression(random, 4);
    const std::string text = e.text();
    ASSERT_EQ(Expression::parse(text, 2).text(), text);
    ASSERT_EQ(Expression::parse(text, 2).value(std::vector<double>{0.7, 1.3}.data()),
              e.value(std::vector<double>{0.7, 1.3}.data()))
        << text;
  }
}

TEST(Expression, DerivativesAreTheSlopes) {
  std::mt19937_64 random(2);
  int compared = 0;
  for (int round = 0; round < 500; ++round) {
    const Expression e = random_expression(random, 3);
    const int64_t operand = static_cast<int64_t>(random() % 2);
    std::vector<double> x{0.5 + 1e-3 * static_cast<double>(random() % 1500),
                          0.5 + 1e-3 * static_cast<double>(random() % 1500)};
    const double slope = e.derivative(operand).value(x.data());
    constexpr double kStep = 1e-5;
    const auto shifted = [&](double by) {
      std::vector<double> at = x;
      at[operand] += by;
      return e.value(at.data());
    };
    const double right = (shifted(kStep) - shifted(0)) / kStep, left = (shifted(0) - shifted(-kStep)) / kStep;
    if (!(std::abs(right - left) < 1e-2 * (1 + std::abs(left)))) continue;  // a jump of where
    ASSERT_NEAR(slope, (right + left) / 2, 1e-4 * (1 + std::abs(slope))) << e.text();
    ++compared;
  }
  EXPECT_GT(compared, 450);
}

TEST(Expression, DerivativesOfWhereAndPowerStayClearOfWhatIsNotDefined) {
  const auto slope = [](const std::string& text, int64_t operand, std::vector<double> x) {
    return Expression::parse(text, 2).derivative(operand).value(x.data());
  };
  EXPECT_EQ(slope("where(x > 0, log(x), 0)", 0, {-1, 0}), 0);
  EXPECT_EQ(slope("pow(x, y)", 1, {0, 2}), 0);
  EXPECT_EQ(slope("pow(x, y)", 0, {0, 0}), 0);
  EXPECT_EQ(slope("pow(x, 3)", 0, {-2, 0}), 12);
  EXPECT_EQ(slope("x < y", 0, {1, 2}), 0);
}

TEST(Expression, IsANamedKernelWhereThatIsTheSame) {
  const auto kernel = [](const std::string& text, int64_t operands) {
    return expression_kernel(Expression::parse(text, operands), operands).text();
  };
  EXPECT_EQ(kernel("x * y", 2), "mul");
  EXPECT_EQ(kernel("y * x", 2), "expression[2, x1*x0]");
  EXPECT_EQ(kernel("exp(x)", 1), "exp");
  EXPECT_EQ(kernel("x", 1), "id");
  EXPECT_EQ(kernel("x", 2), "expression[2, x0]");
}

TEST(Expression, AsAKernelPrintsAndParses) {
  for (const std::string text : {"expression[2, exp(x0-x1)*2]", "expression[3, where(x0<x1,x2,-1)] | exp",
                                 "expression_max[ij,jk->ik:(x0+1)*x1]"}) {
    EXPECT_EQ(Kernel::parse(text).text(), text);
    row_of(Kernel::parse(text));
  }
  EXPECT_EQ(operands_of(Kernel::parse("expression[3, x0]")), 3);
}

TEST(Expression, CountsAsManyFlopsAsItsFunctions) {
  EXPECT_EQ(flops_per_element(Kernel::parse("expression[2, exp(x0-x1)*2]")), 3);
  EXPECT_EQ(flops_per_element(Kernel::parse("expression_add[ij,jk->ik:exp(x0-x1)*2]")), 4);
  EXPECT_EQ(flops(Kernel::parse("expression_add[ij,jk->ik:exp(x0-x1)*2]"), {{2, 3}, {3, 5}}), 4 * 2 * 3 * 5);
  EXPECT_EQ(flops(Kernel::parse("expression[2, sigmoid(x0)]"), {{2, 3}, {3}}), 4 * 6);
}

TEST(Expression, IsTypedByItsFunctions) {
  const auto type_error = [](const std::string& text, DType dtype) {
    try {
      result_dtype(Kernel::parse(text), {dtype, dtype});
    } catch (const KernelError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(type_error("expression[2, where(x0<x1,x0*3,x1)]", DType::kInt32), "no error");
  EXPECT_EQ(type_error("expression[2, exp(x0)*x1]", DType::kComplex64), "no error");
  EXPECT_EQ(type_error("expression[2, exp(x0)]", DType::kInt32),
            "expression: a function is not defined on this dtype; cast the operand: function=exp, dtype=i32, "
            "expression=exp(x0)");
  EXPECT_EQ(type_error("expression[2, x0*0.5]", DType::kInt32),
            "expression: integers take whole numbers; cast the operand: number=0.5, dtype=i32");
  EXPECT_EQ(type_error("expression[2, x0<x1]", DType::kComplex64).substr(0, 51),
            "expression: a function is not defined on this dtype");
  EXPECT_EQ(type_error("expression[2, x0+x1]", DType::kBool).substr(0, 42),
            "expression: not defined on truth values; c");
}

TEST(Expression, ReducedOnesAreTheReductionOfTheJoined) {
  const Array x{{2, 3}, {1, 2, 3, 4, 5, 6}}, y{{3, 2}, {1, 0, 2, -1, 3, 1}};
  EXPECT_EQ(reference::run(Kernel::parse("expression_add[ij,jk->ik:x0*x1+x0]"), {x, y}).values,
            (std::vector<double>{20, 7, 47, 16}));
  EXPECT_EQ(reference::run(Kernel::parse("expression_max[ij,jk->ik:where(x0<x1,x0,x1*2)]"), {x, y}).values,
            (std::vector<double>{6, 2, 6, 2}));
}

}  // namespace
}  // namespace joinsum::kernels::expression

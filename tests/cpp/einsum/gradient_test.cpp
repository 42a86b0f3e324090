#include "einsum/gradient.h"

#include <cmath>

#include <gtest/gtest.h>

#include "einsum/interpret.h"
#include "einsum/text.h"
#include "random_einsums.h"

namespace joinsum::einsum {
namespace {

using kernels::Array;
using Arrays = std::map<std::string, Array>;

std::vector<std::string> names_of(const Plan& plan) {
  std::vector<std::string> out;
  for (const NodePtr& node : plan.inputs()) out.push_back(node->as<Input>()->name);
  return out;
}

/// Σ over outputs of value times arriving gradient.
double weighted(const Plan& plan, const Arrays& inputs) {
  double total = 0;
  for (const auto& [name, value] : interpret(plan, inputs)) {
    const Array& weight = inputs.at("d_" + name);
    for (size_t i = 0; i < value.values.size(); ++i) total += value.values[i] * weight.values[i];
  }
  return total;
}

/// Compares the gradient for each element with a central difference.
void expect_slopes(const Plan& plan, Arrays inputs, RandomEinsums& random) {
  for (const auto& output : plan.outputs()) {
    Array arriving = Array::zeros(output.node->type().extents);
    for (double& value : arriving.values) value = 0.5 + 0.25 * static_cast<double>(random.draw(5));
    inputs["d_" + output.name] = arriving;
  }
  const Plan slopes = gradient(plan, names_of(plan));
  const Arrays computed = interpret(slopes, inputs);
  constexpr double kStep = 1e-5;
  for (const auto& output : slopes.outputs()) {
    const std::string name = output.name.substr(2);
    const Array& slope = computed.at(output.name);
    for (size_t i = 0; i < slope.values.size(); ++i) {
      Arrays up = inputs, down = inputs;
      up.at(name).values[i] += kStep;
      down.at(name).values[i] -= kStep;
      const double wanted = (weighted(plan, up) - weighted(plan, down)) / (2 * kStep);
      ASSERT_NEAR(slope.values[i], wanted, 1e-4 * (1 + std::abs(wanted))) << name << "[" << i << "]\n" << plan.text();
    }
  }
}

Plan one(const std::string& inputs, const std::string& vertex) {
  return parse("einsum\n" + inputs + "output Z = " + vertex);
}

TEST(EinsumGradient, OfAProductIsTwoProducts) {
  const Plan plan = one("input X: f64[2,3]\ninput Y: f64[3,4]\n", "einsum[ij,jk->ik; mul; add](X, Y)");
  EXPECT_EQ(print(gradient(plan, {"X", "Y"})),
            "einsum\n"
            "input d_Z: f64[2,4]\n"
            "input Y: f64[3,4]\n"
            "input X: f64[2,3]\n"
            "t0 = einsum[ik,jk->ij; mul; add](d_Z, Y): f64[2,3]\n"
            "t1 = einsum[ik,ij->jk; mul; add](d_Z, X): f64[3,4]\n"
            "output d_X = t0\n"
            "output d_Y = t1\n");
}

TEST(EinsumGradient, EveryJoinAndAggregationHasTheSlopeOfItsValue) {
  RandomEinsums random(3);
  const std::string two = "input X: f64[2,3]\ninput Y: f64[3,2]\n";
  for (const std::string join : {"mul", "add", "sub", "div", "max", "min", "squared_difference", "abs_difference",
                                 "logaddexp", "sub | square", "add | exp | sqrt", "expression[2, exp(x0-x1)*x0/2]",
                                 "expression[2, x1]", "expression[2, where(x0<x1,tanh(x0),pow(x1,2))] | exp"}) {
    for (const std::string aggregate : {"add", "mul", "max", "min", "logaddexp"}) {
      for (const std::string labels : {"ij,jk->ik", "ij,jk->ijk", "ij,jk->k", "ij,kl->", "ij,ji->j"}) {
        const Plan plan = one(two, "einsum[" + labels + "; " + join + "; " + aggregate + "](X, Y)");
        expect_slopes(plan, random.contents(plan, false), random);
      }
    }
  }
}

TEST(EinsumGradient, EveryMapHasTheSlopeOfItsValue) {
  RandomEinsums random(4);
  for (const std::string map :
       {"id", "square", "exp", "log", "sqrt", "reciprocal", "abs", "relu", "softplus", "sigmoid", "tanh", "negate",
        "scale[3.0]", "conjugate", "sign", "expression[1, log(x0)*sigmoid(x0)]"}) {
    const Plan plan = one("input X: f64[2,3]\n", "einsum[ij->i; " + map + "; add](X)");
    expect_slopes(plan, random.contents(plan, false), random);
  }
}

TEST(EinsumGradient, RandomGraphsHaveTheSlopesOfTheirValues) {
  RandomEinsums random(5);
  for (int round = 0; round < 150; ++round) {
    const Plan plan = random.plan({.differentiable = true, .vertices = 2});
    expect_slopes(plan, random.contents(plan, false), random);
  }
}

TEST(EinsumGradient, HasAGradientOfItsOwn) {
  RandomEinsums random(6);
  const Plan plan = one("input X: f64[2,3]\ninput Y: f64[3,2]\n", "einsum[ij,jk->ik; mul; logaddexp](X, Y)");
  const Plan slopes = gradient(plan, {"X", "Y"});
  expect_slopes(slopes, random.contents(slopes, false), random);
}

TEST(EinsumGradient, OfAnExpressionOfThreeOperandsIsItsSlope) {
  RandomEinsums random(7);
  const std::string three = "input X: f64[2,3]\ninput Y: f64[3,2]\ninput W: f64[2]\n";
  for (const std::string e : {"exp(x0-x1)*x2", "where(x0<x1,x2,x0*x2)", "x2", "pow(x0,x1)/x2"}) {
    for (const std::string labels : {"ij,jk,k->ik", "ij,jk,k->", "ij,ji,l->j"}) {
      const Plan plan = one(three, "einsum[" + labels + "; expression[3, " + e + "]; add](X, Y, W)");
      expect_slopes(plan, random.contents(plan, false), random);
    }
  }
}

TEST(EinsumGradient, OfWhatIsFlatIsZero) {
  const Plan plan = one("input X: f64[2]\ninput Y: f64[2]\n", "einsum[i,i->i; expression[2, x0<x1]; add](X, Y)");
  EXPECT_EQ(print(gradient(plan, {"X"})),
            "einsum\n"
            "input X: f64[2]\n"
            "t0 = einsum[a->a; expression[1, 0]; add](X): f64[2]\n"
            "output d_X = t0\n");
}

TEST(EinsumGradient, TiesShareEqually) {
  const Plan plan = one("input X: f64[4]\n", "einsum[i->; id; max](X)");
  const auto computed = interpret(gradient(plan, {"X"}), {{"X", {{4}, {2, 5, 5, 1}}}, {"d_Z", {{}, {3}}}});
  EXPECT_EQ(computed.at("d_X"), (Array{{4}, {0, 1.5, 1.5, 0}}));
}

TEST(EinsumGradient, OfAProductWithAZeroIsTheProductOfTheOthers) {
  const Plan plan = one("input X: f64[3]\n", "einsum[i->; id; mul](X)");
  const auto at = [&](std::vector<double> x) {
    return interpret(gradient(plan, {"X"}), {{"X", {{3}, std::move(x)}}, {"d_Z", {{}, {1}}}}).at("d_X").values;
  };
  EXPECT_EQ(at({2, 0, 5}), (std::vector<double>{0, 10, 0}));
  EXPECT_EQ(at({0, 0, 5}), (std::vector<double>{0, 0, 0}));
  EXPECT_EQ(at({2, 3, 5}), (std::vector<double>{15, 10, 6}));
}

TEST(EinsumGradient, DoesNotPassTruthValues) {
  const Plan plan = parse(
      "einsum\ninput X: f64[3]\nt0 = einsum[i->i; cast[bool]; add](X)\nt1 = einsum[i->i; cast[f64]; add](t0)\n"
      "output Z = einsum[i,i->; mul; add](X, t1)\noutput T = t0");
  const Plan slopes = gradient(plan, {"X"});
  EXPECT_EQ(slopes.inputs().size(), 2);
  EXPECT_EQ(interpret(slopes, {{"X", {{3}, {2, 0, 5}}}, {"d_Z", {{}, {3}}}}).at("d_X"), (Array{{3}, {3, 0, 3}}));
}

TEST(EinsumGradient, OnlyFloatingInputsHaveOne) {
  const auto error_of = [](const Plan& plan, const std::vector<std::string>& of) {
    try {
      gradient(plan, of);
    } catch (const PlanError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  const Plan plan = one("input X: i32[3]\n", "einsum[i->; id; add](X)");
  EXPECT_EQ(error_of(plan, {"X"}), "gradient: only floating tensors have one: input=X, type=i32[3]");
  EXPECT_EQ(error_of(plan, {"Y"}), "gradient: no such input: name=Y");
}

TEST(EinsumGradient, RandomGraphsOfExpressionsHaveTheSlopesOfTheirValues) {
  RandomEinsums random(10);
  for (int round = 0; round < 100; ++round) {
    const Plan plan = random.plan({.differentiable = true, .expressions = true, .vertices = 2});
    expect_slopes(plan, random.contents(plan, false), random);
  }
}

}  // namespace
}  // namespace joinsum::einsum

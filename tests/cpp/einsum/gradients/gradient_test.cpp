#include "einsum/gradients/gradient.h"

#include <cmath>

#include <gtest/gtest.h>

#include "einsum/interpret.h"
#include "einsum/text.h"
#include "random_einsums.h"

namespace joinsum::einsum::gradients {
namespace {

using kernels::reference::Array;
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

/// Calls of the kernels of so many operands whose rows have derivatives; of `cast` it is no slope where the dtype
/// changes, of `detach` never.
std::vector<std::string> differentiable_kernels(int64_t operands) {
  std::vector<std::string> out;
  for (const kernels::table::Row* row : kernels::table::all_rows()) {
    if (row->derivative.empty() || row->operands != operands || row->name == "detach") continue;
    std::string parameters;
    for (const char kind : row->parameters)
      parameters += (parameters.empty() ? "" : ", ") + std::string(kind == 'l' ? "f64" : "3.0");
    out.push_back(row->name + (parameters.empty() ? "" : "[" + parameters + "]"));
  }
  return out;
}

TEST(EinsumGradient, EveryJoinAndAggregationHasTheSlopeOfItsValue) {
  RandomEinsums random(3);
  const std::string two = "input X: f64[2,3]\ninput Y: f64[3,2]\n";
  std::vector<std::string> joins = differentiable_kernels(2);
  for (const char* other : {"sub | square", "add | exp | sqrt", "expression[2, exp(x0-x1)*x0/2]", "expression[2, x1]",
                            "expression[2, where(x0<x1,tanh(x0),pow(x1,2))] | exp"}) {
    joins.emplace_back(other);
  }
  for (const std::string& join : joins) {
    for (const kernels::table::Row* row : kernels::table::reducing_rows()) {
      const std::string& aggregate = row->name;
      for (const std::string labels : {"ij,jk->ik", "ij,jk->ijk", "ij,jk->k", "ij,kl->", "ij,ji->j"}) {
        const Plan plan = one(two, "einsum[" + labels + "; " + join + "; " + aggregate + "](X, Y)");
        expect_slopes(plan, random.contents(plan, false), random);
      }
    }
  }
}

TEST(EinsumGradient, EveryMapHasTheSlopeOfItsValue) {
  RandomEinsums random(4);
  std::vector<std::string> maps = differentiable_kernels(1);
  maps.emplace_back("expression[1, log(x0)*sigmoid(x0)]");
  for (const std::string& map : maps) {
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

/// Gradients of Z = extreme over the labels that it lacks of the join of three operands, element by element: each way
/// to an extreme gets 1 / the ways to it, and passes it through the two joins.
Arrays of_ways(const std::string& labels, const Arrays& inputs, bool adds, bool largest) {
  const std::vector<std::string> names{"X", "Y", "W"};
  const std::string result = labels.substr(labels.find('>') + 1);
  std::vector<std::string> operands;
  for (size_t begin = 0; operands.size() < 3; begin = labels.find_first_of(",-", begin) + 1) {
    operands.push_back(labels.substr(begin, labels.find_first_of(",-", begin) - begin));
  }
  const std::string all = "ijkl";
  constexpr int64_t kExtent = 2;
  const auto at = [&](const std::string& axes, int64_t way) {
    size_t offset = 0;
    for (const char label : axes) offset = offset * kExtent + (way >> all.find(label) & 1);
    return offset;
  };
  const auto element = [&](size_t i, int64_t way) { return inputs.at(names[i]).values[at(operands[i], way)]; };
  const auto joined = [&](double a, double b) { return adds ? a + b : std::min(a, b); };
  const auto value = [&](int64_t way) { return joined(joined(element(0, way), element(1, way)), element(2, way)); };
  const auto ties = [&](int64_t way) {
    std::pair<bool, int64_t> best{true, 0};
    for (int64_t other = 0; other < 16; ++other) {
      if (at(result, other) != at(result, way)) continue;
      if (largest ? value(other) > value(way) : value(other) < value(way)) best.first = false;
      if (value(other) == value(way)) ++best.second;
    }
    return best;
  };
  const auto share = [](double a, double b) { return a < b ? 1.0 : a == b ? 0.5 : 0.0; };
  Arrays out;
  for (size_t i = 0; i < 3; ++i) out["d_" + names[i]] = Array::zeros(inputs.at(names[i]).shape);
  for (int64_t way = 0; way < 16; ++way) {
    const auto [tied, count] = ties(way);
    if (!tied) continue;
    const double d = inputs.at("d_Z").values[at(result, way)] / static_cast<double>(count);
    const double x = element(0, way), y = element(1, way), w = element(2, way);
    const double first = adds ? d : d * share(std::min(x, y), w);
    out["d_X"].values[at(operands[0], way)] += adds ? d : first * share(x, y);
    out["d_Y"].values[at(operands[1], way)] += adds ? d : first * share(y, x);
    out["d_W"].values[at(operands[2], way)] += adds ? d : d * share(w, std::min(x, y));
  }
  return out;
}

TEST(EinsumGradient, TiesOfThreeOperandsShareEquallyInEveryOrder) {
  RandomEinsums random(8);
  const std::vector<transforms::Path> orders{{{0, 1}, {1, 0}}, {{1, 2}, {0, 1}}, {{0, 2}, {0, 1}}};
  for (const std::string labels : {"ij,jk,kl->il", "ij,jk,kl->", "ij,jk,k->i", "ij,k,l->jk"}) {
    for (const std::string kernels : {"add; max", "add; min", "min; max", "min; min"}) {
      const Plan plan =
          parse("einsum\ninput X: f64[2,2]\ninput Y: f64" + std::string(labels[4] == ',' ? "[2]" : "[2,2]") +
                "\ninput W: f64" + (labels.find(",kl") == std::string::npos ? "[2]" : "[2,2]") +
                "\noutput Z = einsum[" + labels + "; " + kernels + "](X, Y, W)");
      for (int round = 0; round < 20; ++round) {
        Arrays inputs;
        for (const NodePtr& node : plan.inputs()) {
          Array& values = inputs[node->as<Input>()->name] = Array::zeros(node->type().extents);
          for (double& value : values.values) value = static_cast<double>(random.draw(2));
        }
        Array& arriving = inputs["d_Z"] = Array::zeros(plan.outputs()[0].node->type().extents);
        for (double& value : arriving.values) value = 12.0 * static_cast<double>(1 + random.draw(3));
        const bool adds = kernels.starts_with("add"), largest = kernels.ends_with("max");
        const Arrays wanted = of_ways(labels, inputs, adds, largest);
        for (const transforms::Path& order : orders) {
          const Arrays got = interpret(gradient(plan, {"X", "Y", "W"}, {{"t0", order}}), inputs);
          for (const auto& [name, slope] : wanted) {
            for (size_t i = 0; i < slope.values.size(); ++i) {
              ASSERT_NEAR(got.at(name).values[i], slope.values[i], 1e-12) << name << "\n" << plan.text();
            }
          }
        }
      }
    }
  }
}

TEST(EinsumGradient, IsCutWhereOnlyIntegersLeadToAnOutput) {
  const Plan plan = parse(
      "einsum\ninput X: f64[3]\nt0 = einsum[i->i; cast[i64]; add](X)\nt1 = einsum[i->i; cast[f64]; add](t0)\n"
      "output Z = t1\noutput I = t0\noutput S = einsum[i,i->; mul; add](X, t1)\n"
      "output C = einsum[i->i; cast[i64] | cast[f64]; add](X)");
  EXPECT_EQ(differentiable_outputs(plan, {"X"}), (std::vector<bool>{false, false, true, false}));
}

TEST(EinsumGradient, OfADetachedValueIsThatOfAConstant) {
  const Plan plan =
      parse("einsum\ninput X: f64[3]\nt0 = einsum[i->i; detach; add](X)\noutput Z = einsum[i,i->; mul; add](X, t0)");
  const Plan slopes = gradient(plan, {"X"});
  EXPECT_EQ(interpret(slopes, {{"X", {{3}, {2, 0, 5}}}, {"d_Z", {{}, {3}}}}).at("d_X"), (Array{{3}, {6, 0, 15}}));
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
}  // namespace joinsum::einsum::gradients

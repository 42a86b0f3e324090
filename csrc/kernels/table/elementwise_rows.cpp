#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/table/rows.h"

namespace joinsum::kernels::table {

using semiring::Join;
using semiring::Reduction;

namespace {

/// Facts of a function that never decreases.
Facts monotone() { return {.distributes_over = {{"max"}, {"min"}}}; }

double positive_part(double x) { return x < 0 ? 0 : x; }

double softplus(double x) { return positive_part(x) + std::log1p(std::exp(-std::abs(x))); }

double sigmoid(double x) { return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x)); }

/// As torch, and unlike std::min: the result is not a number when an operand is not.
double smaller(double a, double b) { return std::isnan(a) || a < b ? a : b; }
double larger(double a, double b) { return std::isnan(a) || a > b ? a : b; }

/// log(eᵃ + eᵇ) without overflow.
double log_add_exp(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return a + b;
  const double most = std::max(a, b);
  return std::isinf(most) ? most : most + std::log1p(std::exp(-std::abs(a - b)));
}

double adam_direction(double first, double second, const double* n) {
  const double rate = n[0], beta1 = n[1], beta2 = n[2], epsilon = n[3], step = n[4];
  const double mean = first / (1 - std::pow(beta1, step));
  const double variance = second / (1 - std::pow(beta2, step));
  return rate * mean / (std::sqrt(variance) + epsilon);
}

}  // namespace

std::vector<Row> identity_rows() {
  return {{.name = "id",
           .summary = "the operand itself",
           .flops_per_element = 0,
           .facts = moves(),
           .element = [](const double* x, const double*) { return x[0]; },
           .derivative = {"d"}}};
}

std::vector<Row> arithmetic_rows() {
  return {
      {.name = "add",
       .summary = "a + b",
       .operands = 2,
       .facts = {.associative = true,
                 .commutative = true,
                 .additive = true,
                 .distributes_over = {{"max"}, {"min"}, {"logaddexp"}},
                 .identity = 0.0},
       .element = [](const double* x, const double*) { return x[0] + x[1]; },
       .derivative = {"d"},
       .joins_by = Join::kAdd,
       .reduces_by = Reduction::kAdd,
       .aggregation = "sum"},
      {.name = "sub",
       .summary = "a - b",
       .operands = 2,
       .facts = {.additive = true,
                 .distributes_over = {{.over = "max", .right = false},
                                      {.over = "min", .right = false},
                                      {.over = "logaddexp", .right = false}}},
       .element = [](const double* x, const double*) { return x[0] - x[1]; },
       .derivative = {"d", "scale[-1](d)"},
       .joins_by = Join::kSub},
      {.name = "mul",
       .summary = "a b",
       .operands = 2,
       .facts = {.associative = true, .commutative = true, .linear = true, .identity = 1.0, .annihilator = 0.0},
       .element = [](const double* x, const double*) { return x[0] * x[1]; },
       .derivative = {"mul(d, conjugate(y))"},
       .joins_by = Join::kMul,
       .reduces_by = Reduction::kMul,
       .aggregation = "prod"},
      {.name = "div",
       .summary = "a / b",
       .operands = 2,
       .domain = Domain::kFloating,
       .facts = {.distributes_over = {{.over = "add", .right = false}, {.over = "sub", .right = false}}},
       .element = [](const double* x, const double*) { return x[0] / x[1]; },
       .derivative = {"div(d, conjugate(y))", "negate(div(div(mul(d, conjugate(y)), conjugate(x)), conjugate(x)))"},
       .joins_by = Join::kDiv},
      {.name = "min",
       .summary = "the smaller of a and b",
       .operands = 2,
       .domain = Domain::kOrdered,
       .facts = {.associative = true,
                 .commutative = true,
                 .idempotent = true,
                 .distributes_over = {{"max"}, {"min"}},
                 .identity = kInfinity,
                 .annihilator = -kInfinity},
       .element = [](const double* x, const double*) { return smaller(x[0], x[1]); },
       .derivative = {"mul(d, above(y, x))"},
       .joins_by = Join::kMin,
       .reduces_by = Reduction::kMin,
       .aggregation = "min"},
      {.name = "max",
       .summary = "the larger of a and b",
       .operands = 2,
       .domain = Domain::kOrdered,
       .facts = {.associative = true,
                 .commutative = true,
                 .idempotent = true,
                 .distributes_over = {{"max"}, {"min"}},
                 .identity = -kInfinity,
                 .annihilator = kInfinity},
       .element = [](const double* x, const double*) { return larger(x[0], x[1]); },
       .derivative = {"mul(d, above(x, y))"},
       .joins_by = Join::kMax,
       .reduces_by = Reduction::kMax,
       .aggregation = "max"},
      {.name = "squared_difference",
       .summary = "(a - b)²",
       .operands = 2,
       .flops_per_element = 2,
       .facts = {.commutative = true},
       .element = [](const double* x, const double*) { return (x[0] - x[1]) * (x[0] - x[1]); },
       .derivative = {"scale[2](mul(d, conjugate(sub(x, y))))"},
       .joins_by = Join::kSquaredDifference},
      {.name = "abs_difference",
       .summary = "|a - b|",
       .operands = 2,
       .domain = Domain::kOrdered,
       .flops_per_element = 2,
       .facts = {.commutative = true},
       .element = [](const double* x, const double*) { return std::abs(x[0] - x[1]); },
       .derivative = {"mul(d, sign(sub(x, y)))"},
       .joins_by = Join::kAbsDifference},
      {.name = "logaddexp",
       .summary = "log(eᵃ + eᵇ)",
       .operands = 2,
       .domain = Domain::kReal,
       .flops_per_element = 5,
       .facts =
           {.associative = true, .commutative = true, .distributes_over = {{"max"}, {"min"}}, .identity = -kInfinity},
       .element = [](const double* x, const double*) { return log_add_exp(x[0], x[1]); },
       .derivative = {"mul(d, sigmoid(sub(x, y)))"},
       .reduces_by = Reduction::kLogAddExp,
       .aggregation = "logsumexp"},
      {.name = "equal",
       .summary = "1 where a = b, else 0",
       .operands = 2,
       .facts = {.commutative = true},
       .element = [](const double* x, const double*) { return x[0] == x[1] ? 1.0 : 0.0; },
       .derivative = {"zero"}},
      {.name = "above",
       .summary = "0 where a < b, 1/2 where a = b, else 1, also where one is not a number",
       .operands = 2,
       .domain = Domain::kReal,
       .facts = {.distributes_over = {{.over = "max", .right = false}, {.over = "min", .right = false}}},
       .element = [](const double* x, const double*) { return x[0] < x[1]    ? 0.0
                                                              : x[0] == x[1] ? 0.5
                                                                             : 1.0; },
       .derivative = {"zero"}},
  };
}

std::vector<Row> algebraic_rows() {
  const Facts multiplicative{.distributes_over = {{"mul"}, {"div"}}};
  return {
      {.name = "scale",
       .summary = "n x",
       .parameters = "n",
       .facts = linear(),
       .element = [](const double* x, const double* n) { return n[0] * x[0]; },
       .derivative = {"this(d)"}},
      {.name = "negate",
       .summary = "-x",
       .facts = linear(),
       .element = [](const double* x, const double*) { return -x[0]; },
       .derivative = {"this(d)"}},
      {.name = "square",
       .summary = "x²",
       .facts = multiplicative,
       .element = [](const double* x, const double*) { return x[0] * x[0]; },
       .derivative = {"mul(d, scale[2](conjugate(x)))"}},
      {.name = "reciprocal",
       .summary = "1 / x",
       .domain = Domain::kFloating,
       .facts = multiplicative,
       .element = [](const double* x, const double*) { return 1 / x[0]; },
       .derivative = {"mul(d, square | negate(conjugate(z)))"}},
      {.name = "abs",
       .summary = "|x|",
       .domain = Domain::kOrdered,
       .facts = multiplicative,
       .element = [](const double* x, const double*) { return std::abs(x[0]); },
       .derivative = {"mul(d, sign(x))"}},
      {.name = "conjugate",
       .summary = "complex conjugate",
       .flops_per_element = 0,
       .facts = {.distributes_over = {{"add"}, {"sub"}, {"mul"}, {"div"}}},
       .element = [](const double* x, const double*) { return x[0]; },
       .derivative = {"this(d)"}},
      {.name = "detach",
       .summary = "x, as a constant to gradients",
       .flops_per_element = 0,
       .facts = moves(),
       .element = [](const double* x, const double*) { return x[0]; },
       .derivative = {"zero"}},
      {.name = "sign",
       .summary = "-1, 0 or 1",
       .domain = Domain::kOrdered,
       .facts = {.distributes_over = {{"mul"}, {"max"}, {"min"}}},
       .element = [](const double* x, const double*) { return x[0] > 0   ? 1.0
                                                              : x[0] < 0 ? -1.0
                                                                         : x[0]; },
       .derivative = {"zero"}},
      {.name = "is_zero",
       .summary = "1 where x = 0, else 0",
       .facts = {},
       .element = [](const double* x, const double*) { return x[0] == 0 ? 1.0 : 0.0; },
       .derivative = {"zero"}},
      {.name = "sqrt",
       .summary = "√x; not a number below 0",
       .domain = Domain::kFloating,
       .facts = {.distributes_over = {{"min"}}},
       .element = [](const double* x, const double*) { return std::sqrt(x[0]); },
       .derivative = {"mul(d, scale[0.5](reciprocal(conjugate(z))))"}},
  };
}

std::vector<Row> function_rows() {
  return {
      {.name = "relu",
       .summary = "max(x, 0)",
       .domain = Domain::kOrdered,
       .facts = monotone(),
       .element = [](const double* x, const double*) { return positive_part(x[0]); },
       .derivative = {"mul(d, relu_derivative(x))"}},
      {.name = "relu_derivative",
       .summary = "1 where x > 0, else 0",
       .domain = Domain::kOrdered,
       .facts = monotone(),
       .element = [](const double* x, const double*) { return x[0] > 0 ? 1.0 : 0.0; },
       .derivative = {"zero"}},
      {.name = "sigmoid",
       .summary = "1 / (1 + exp(-x))",
       .domain = Domain::kReal,
       .flops_per_element = 4,
       .facts = monotone(),
       .element = [](const double* x, const double*) { return sigmoid(x[0]); },
       .derivative = {"mul(d, sub(z, square(z)))"}},
      {.name = "tanh",
       .summary = "hyperbolic tangent",
       .domain = Domain::kFloating,
       .facts = monotone(),
       .element = [](const double* x, const double*) { return std::tanh(x[0]); },
       .derivative = {"sub(d, mul(d, square(conjugate(z))))"}},
      {.name = "exp",
       .summary = "eˣ",
       .domain = Domain::kFloating,
       .facts = monotone(),
       .element = [](const double* x, const double*) { return std::exp(x[0]); },
       .derivative = {"mul(d, conjugate(z))"}},
      {.name = "log",
       .summary = "natural logarithm; not a number below 0",
       .domain = Domain::kFloating,
       .facts = {.distributes_over = {{"min"}}},
       .element = [](const double* x, const double*) { return std::log(x[0]); },
       .derivative = {"mul(d, reciprocal(conjugate(x)))"}},
      {.name = "softplus",
       .summary = "log(1 + exp(x))",
       .domain = Domain::kReal,
       .flops_per_element = 6,
       .facts = monotone(),
       .element = [](const double* x, const double*) { return softplus(x[0]); },
       .derivative = {"mul(d, sigmoid(x))"}},
  };
}

std::vector<Row> loss_rows() {
  return {
      {.name = "bce_with_logits",
       .summary = "binary cross entropy of logit z and target y: max(z, 0) - z y + log(1 + exp(-|z|))",
       .operands = 2,
       .domain = Domain::kReal,
       .flops_per_element = 8,
       .element =
           [](const double* x, const double*) {
             return positive_part(x[0]) - x[0] * x[1] + std::log1p(std::exp(-std::abs(x[0])));
           }},
      {.name = "sigmoid_difference",
       .summary = "sigmoid(z) - y, the gradient of bce_with_logits in z",
       .operands = 2,
       .domain = Domain::kReal,
       .flops_per_element = 5,
       .facts = {.distributes_over = {{.over = "max", .right = false}, {.over = "min", .right = false}}},
       .element = [](const double* x, const double*) { return sigmoid(x[0]) - x[1]; }},
  };
}

/// Adam: Kingma and Ba, arXiv 1412.6980, algorithm 1, with torch.optim.Adam's place of epsilon.
std::vector<Row> update_rows() {
  return {
      {.name = "sgd_update",
       .summary = "w - rate g; parameter rate",
       .operands = 2,
       .parameters = "n",
       .domain = Domain::kFloating,
       .flops_per_element = 2,
       .facts = {.additive = true,
                 .distributes_over = {{.over = "max", .right = false}, {.over = "min", .right = false}}},
       .element = [](const double* x, const double* n) { return x[0] - n[0] * x[1]; }},
      {.name = "adam_first",
       .summary = "first moment β₁ m + (1 - β₁) g; parameter β₁",
       .operands = 2,
       .parameters = "n",
       .domain = Domain::kReal,
       .flops_per_element = 3,
       .facts = {.additive = true},
       .element = [](const double* x, const double* n) { return n[0] * x[0] + (1 - n[0]) * x[1]; }},
      {.name = "adam_second",
       .summary = "second moment β₂ v + (1 - β₂) g²; parameter β₂",
       .operands = 2,
       .parameters = "n",
       .domain = Domain::kReal,
       .flops_per_element = 4,
       .element = [](const double* x, const double* n) { return n[0] * x[0] + (1 - n[0]) * x[1] * x[1]; }},
      {.name = "adam_direction",
       .summary = "step rate (m / (1 - β₁ᵗ)) / (√(v / (1 - β₂ᵗ)) + ε), to be subtracted; parameters rate, β₁, β₂, ε, t",
       .operands = 2,
       .parameters = "nnnnn",
       .domain = Domain::kReal,
       .flops_per_element = 5,
       .facts = {.distributes_over = {{.over = "add", .right = false}, {.over = "sub", .right = false}}},
       .element = [](const double* x, const double* n) { return adam_direction(x[0], x[1], n); }},
  };
}

}  // namespace joinsum::kernels::table

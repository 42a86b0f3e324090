#include "kernels/rows.h"

#include <limits>

namespace joinsum::kernels {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Facts of a function that never decreases.
Facts monotone() { return {.distributes_over = {{"max"}, {"min"}}}; }

Facts linear() { return {.linear = true}; }

Facts moves() { return {.linear = true, .moves_elements = true}; }

std::function<Labels(const Kernel&)> letters(const std::string& text) {
  return [labels = Labels::parse(text)](const Kernel&) { return labels; };
}

/// Letters of `contract`: two operands, no letter twice in one of them.
Labels contraction_letters(const Kernel& kernel) {
  Labels labels = Labels::parse(kernel.label(0));
  JOINSUM_KERNEL_CHECK(labels.operands.size() == 2, "contract: two operands are contracted: labels=", labels.text());
  for (const std::string& operand : labels.operands) {
    for (size_t i = 0; i < operand.size(); ++i) {
      JOINSUM_KERNEL_CHECK(operand.find(operand[i], i + 1) == std::string::npos,
                           "contract: letter occurs twice in one operand: labels=", labels.text(),
                           ", letter=", operand[i]);
    }
  }
  return labels;
}

DType cast_dtype(const Kernel& kernel, DType from) {
  const auto to = dtype_from_name(kernel.label(0));
  JOINSUM_KERNEL_CHECK(to, "cast: unknown dtype: dtype=", kernel.label(0), ", known=bool, u8, i8, i16, i32, i64, f16, ",
                       "bf16, f32, f64, c64, c128");
  const auto complex = [](DType dtype) { return dtype == DType::kComplex64 || dtype == DType::kComplex128; };
  JOINSUM_KERNEL_CHECK(!complex(from) || complex(*to), "cast: a complex number has no real value: from=", name_of(from),
                       ", to=", name_of(*to));
  return *to;
}

std::vector<Row> contraction_rows() {
  const Facts product{.linear = true, .annihilator = 0.0};
  Facts chain = product;
  chain.associative = true;
  return {
      {.name = "matmul",
       .summary = "matrix product AB",
       .operands = 2,
       .form = Form::kLabelled,
       .flops_per_element = 2,
       .facts = chain,
       .labels = letters("ij,jk->ik")},
      {.name = "matmul_tn",
       .summary = "matrix product AᵀB",
       .operands = 2,
       .form = Form::kLabelled,
       .flops_per_element = 2,
       .facts = product,
       .labels = letters("ji,jk->ik")},
      {.name = "matmul_nt",
       .summary = "matrix product ABᵀ",
       .operands = 2,
       .form = Form::kLabelled,
       .flops_per_element = 2,
       .facts = product,
       .labels = letters("ij,kj->ik")},
      {.name = "contract",
       .summary = "product of two operands, summed over the letters that the result lacks",
       .operands = 2,
       .parameters = "l",
       .form = Form::kLabelled,
       .flops_per_element = 2,
       .facts = product,
       .labels = contraction_letters},
  };
}

std::vector<Row> arithmetic_rows() {
  return {
      {.name = "add",
       .summary = "a + b",
       .operands = 2,
       .facts = {.associative = true, .commutative = true, .distributes_over = {{"max"}, {"min"}}, .identity = 0.0}},
      {.name = "sub",
       .summary = "a - b",
       .operands = 2,
       .facts = {.distributes_over = {{.over = "max", .right = false}, {.over = "min", .right = false}}}},
      {.name = "mul",
       .summary = "a b",
       .operands = 2,
       .facts = {.associative = true, .commutative = true, .linear = true, .identity = 1.0, .annihilator = 0.0}},
      {.name = "div",
       .summary = "a / b",
       .operands = 2,
       .domain = Domain::kFloating,
       .facts = {.distributes_over = {{.over = "add", .right = false}, {.over = "sub", .right = false}}}},
      {.name = "min",
       .summary = "the smaller of a and b",
       .operands = 2,
       .domain = Domain::kOrdered,
       .facts = {.associative = true,
                 .commutative = true,
                 .idempotent = true,
                 .distributes_over = {{"max"}, {"min"}},
                 .identity = kInfinity,
                 .annihilator = -kInfinity}},
      {.name = "max",
       .summary = "the larger of a and b",
       .operands = 2,
       .domain = Domain::kOrdered,
       .facts = {.associative = true,
                 .commutative = true,
                 .idempotent = true,
                 .distributes_over = {{"max"}, {"min"}},
                 .identity = -kInfinity,
                 .annihilator = kInfinity}},
      {.name = "squared_difference",
       .summary = "(a - b)²",
       .operands = 2,
       .flops_per_element = 2,
       .facts = {.commutative = true}},
  };
}

std::vector<Row> algebraic_rows() {
  const Facts multiplicative{.distributes_over = {{"mul"}, {"div"}}};
  return {
      {.name = "scale", .summary = "n x", .parameters = "n", .facts = linear()},
      {.name = "negate", .summary = "-x", .facts = linear()},
      {.name = "square", .summary = "x²", .facts = multiplicative},
      {.name = "reciprocal", .summary = "1 / x", .domain = Domain::kFloating, .facts = multiplicative},
      {.name = "abs", .summary = "|x|", .domain = Domain::kOrdered, .facts = multiplicative},
      {.name = "sqrt",
       .summary = "√x; not a number below 0",
       .domain = Domain::kFloating,
       .facts = {.distributes_over = {{"min"}}}},
  };
}

std::vector<Row> function_rows() {
  return {
      {.name = "relu", .summary = "max(x, 0)", .domain = Domain::kOrdered, .facts = monotone()},
      {.name = "relu_derivative", .summary = "1 where x > 0, else 0", .domain = Domain::kOrdered, .facts = monotone()},
      {.name = "sigmoid",
       .summary = "1 / (1 + exp(-x))",
       .domain = Domain::kReal,
       .flops_per_element = 4,
       .facts = monotone()},
      {.name = "tanh", .summary = "hyperbolic tangent", .domain = Domain::kFloating, .facts = monotone()},
      {.name = "exp", .summary = "eˣ", .domain = Domain::kFloating, .facts = monotone()},
      {.name = "log",
       .summary = "natural logarithm; not a number below 0",
       .domain = Domain::kFloating,
       .facts = {.distributes_over = {{"min"}}}},
      {.name = "softplus",
       .summary = "log(1 + exp(x))",
       .domain = Domain::kReal,
       .flops_per_element = 6,
       .facts = monotone()},
  };
}

std::vector<Row> axis_rows() {
  return {
      {.name = "row_sum",
       .summary = "sum of each row",
       .form = Form::kLabelled,
       .facts = linear(),
       .labels = letters("ij->i")},
      {.name = "total",
       .summary = "sum of all elements",
       .form = Form::kLabelled,
       .facts = linear(),
       .labels = letters("ij->")},
      {.name = "row_max",
       .summary = "largest element of each row; the least value there is for an empty one",
       .form = Form::kLabelled,
       .domain = Domain::kOrdered,
       .facts = {.distributes_over = {{"max"}}},
       .labels = letters("ij->i")},
      {.name = "transpose",
       .summary = "Aᵀ",
       .form = Form::kLabelled,
       .flops_per_element = 0,
       .facts = moves(),
       .labels = letters("ij->ji")},
      {.name = "diag",
       .summary = "diagonal of a square matrix",
       .form = Form::kLabelled,
       .flops_per_element = 0,
       .facts = moves(),
       .labels = letters("ii->i")},
      {.name = "insert_dim",
       .summary = "a new axis of extent 1 at position i",
       .parameters = "i",
       .form = Form::kInsertAxis,
       .flops_per_element = 0,
       .facts = moves()},
      {.name = "duplicate",
       .summary = "several equal copies",
       .form = Form::kDuplicate,
       .flops_per_element = 0,
       .facts = moves()},
      {.name = "tile",
       .summary = "pieces of axis i, of size i each; the last one may be shorter",
       .parameters = "ii",
       .form = Form::kTile,
       .flops_per_element = 0,
       .facts = moves()},
      {.name = "concat",
       .summary = "a, then b along axis i",
       .operands = 2,
       .parameters = "i",
       .form = Form::kConcat,
       .flops_per_element = 0,
       .facts = {.associative = true, .distributes_over = {{"max"}, {"min"}}}},
      {.name = "cast",
       .summary = "the same values in another dtype",
       .parameters = "l",
       .flops_per_element = 0,
       .dtype = cast_dtype},
  };
}

std::vector<Row> loss_rows() {
  return {
      {.name = "bce_with_logits",
       .summary = "binary cross entropy of logit z and target y: max(z, 0) - z y + log(1 + exp(-|z|))",
       .operands = 2,
       .domain = Domain::kReal,
       .flops_per_element = 8},
      {.name = "sigmoid_difference",
       .summary = "sigmoid(z) - y, the gradient of bce_with_logits in z",
       .operands = 2,
       .domain = Domain::kReal,
       .flops_per_element = 5,
       .facts = {.distributes_over = {{.over = "max", .right = false}, {.over = "min", .right = false}}}},
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
       .facts = {.distributes_over = {{.over = "max", .right = false}, {.over = "min", .right = false}}}},
      {.name = "adam_first",
       .summary = "first moment β₁ m + (1 - β₁) g; parameter β₁",
       .operands = 2,
       .parameters = "n",
       .domain = Domain::kReal,
       .flops_per_element = 3},
      {.name = "adam_second",
       .summary = "second moment β₂ v + (1 - β₂) g²; parameter β₂",
       .operands = 2,
       .parameters = "n",
       .domain = Domain::kReal,
       .flops_per_element = 4},
      {.name = "adam_direction",
       .summary = "step rate (m / (1 - β₁ᵗ)) / (√(v / (1 - β₂ᵗ)) + ε), to be subtracted; parameters rate, β₁, β₂, ε, t",
       .operands = 2,
       .parameters = "nnnnn",
       .domain = Domain::kReal,
       .flops_per_element = 5,
       .facts = {.distributes_over = {{.over = "add", .right = false}, {.over = "sub", .right = false}}}},
  };
}

}  // namespace

std::vector<Row> builtin_rows() {
  std::vector<Row> rows{{.name = "id", .summary = "the operand itself", .flops_per_element = 0, .facts = moves()}};
  for (auto part : {contraction_rows(), arithmetic_rows(), algebraic_rows(), function_rows(), axis_rows(), loss_rows(),
                    update_rows()}) {
    rows.insert(rows.end(), std::make_move_iterator(part.begin()), std::make_move_iterator(part.end()));
  }
  return rows;
}

}  // namespace joinsum::kernels

#include "kernels/rows.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/expression.h"

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

/// Letters of a contraction: two operands, no letter twice in one of them.
Labels contraction_letters(const Kernel& kernel) {
  Labels labels = Labels::parse(kernel.label(0));
  JOINSUM_KERNEL_CHECK(labels.operands.size() == 2, kernel.name,
                       ": two operands are contracted: labels=", labels.text());
  for (const std::string& operand : labels.operands) {
    for (size_t i = 0; i < operand.size(); ++i) {
      JOINSUM_KERNEL_CHECK(operand.find(operand[i], i + 1) == std::string::npos, kernel.name,
                           ": letter occurs twice in one operand: labels=", labels.text(), ", letter=", operand[i]);
    }
  }
  return labels;
}

/// Letters of a kernel that permutes axes, takes diagonals and folds: one operand, whose letters may repeat.
Labels reduction_letters(const Kernel& kernel) {
  Labels labels = Labels::parse(kernel.label(0));
  JOINSUM_KERNEL_CHECK(labels.operands.size() == 1, kernel.name, ": one operand is reduced: labels=", labels.text());
  return labels;
}

/// The same without a fold.
Labels arrangement_letters(const Kernel& kernel) {
  Labels labels = reduction_letters(kernel);
  for (const char letter : labels.operands[0]) {
    JOINSUM_KERNEL_CHECK(labels.result.find(letter) != std::string::npos,
                         "arrange: letter of the operand is not in the result: labels=", labels.text(),
                         ", letter=", letter);
  }
  return labels;
}

DType cast_dtype(const Kernel& kernel, DType from) {
  const auto to = dtype_from_name(kernel.label(0));
  JOINSUM_KERNEL_CHECK(to, "cast: unknown dtype: dtype=", kernel.label(0), ", known=bool, u8, i8, i16, i32, i64, f16, ",
                       "bf16, f32, f64, c64, c128");
  const auto complex = [](DType dtype) { return dtype == DType::kComplex64 || dtype == DType::kComplex128; };
  // Truth is a question that complex numbers answer, too: whether they are not 0.
  JOINSUM_KERNEL_CHECK(!complex(from) || complex(*to) || *to == DType::kBool,
                       "cast: a complex number has no real value: from=", name_of(from), ", to=", name_of(*to));
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
       .labels = letters("ij,jk->ik"),
       .combine = "mul",
       .fold = "add"},
      {.name = "matmul_tn",
       .summary = "matrix product AᵀB",
       .operands = 2,
       .form = Form::kLabelled,
       .flops_per_element = 2,
       .facts = product,
       .labels = letters("ji,jk->ik"),
       .combine = "mul",
       .fold = "add"},
      {.name = "matmul_nt",
       .summary = "matrix product ABᵀ",
       .operands = 2,
       .form = Form::kLabelled,
       .flops_per_element = 2,
       .facts = product,
       .labels = letters("ij,kj->ik"),
       .combine = "mul",
       .fold = "add"},
      {.name = "contract",
       .summary = "product of two operands, summed over the letters that the result lacks",
       .operands = 2,
       .parameters = "l",
       .form = Form::kLabelled,
       .flops_per_element = 2,
       .facts = product,
       .labels = contraction_letters,
       .combine = "mul",
       .fold = "add"},
  };
}

std::vector<Row> arithmetic_rows() {
  return {
      {.name = "add",
       .summary = "a + b",
       .operands = 2,
       .facts = {.associative = true,
                 .commutative = true,
                 .distributes_over = {{"max"}, {"min"}, {"logaddexp"}},
                 .identity = 0.0}},
      {.name = "sub",
       .summary = "a - b",
       .operands = 2,
       .facts = {.distributes_over = {{.over = "max", .right = false},
                                      {.over = "min", .right = false},
                                      {.over = "logaddexp", .right = false}}}},
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
      {.name = "abs_difference",
       .summary = "|a - b|",
       .operands = 2,
       .domain = Domain::kOrdered,
       .flops_per_element = 2,
       .facts = {.commutative = true}},
      {.name = "logaddexp",
       .summary = "log(eᵃ + eᵇ)",
       .operands = 2,
       .domain = Domain::kReal,
       .flops_per_element = 5,
       .facts =
           {.associative = true, .commutative = true, .distributes_over = {{"max"}, {"min"}}, .identity = -kInfinity}},
      {.name = "equal", .summary = "1 where a = b, else 0", .operands = 2, .facts = {.commutative = true}},
      {.name = "above",
       .summary = "0 where a < b, 1/2 where a = b, else 1, also where one is not a number",
       .operands = 2,
       .domain = Domain::kReal,
       .facts = {.distributes_over = {{.over = "max", .right = false}, {.over = "min", .right = false}}}},
  };
}

std::vector<Row> rows_named(const std::vector<std::string>& names) {
  std::vector<Row> out;
  const std::vector<Row> rows = arithmetic_rows();
  for (const std::string& name : names) {
    out.push_back(*std::find_if(rows.begin(), rows.end(), [&](const Row& row) { return row.name == name; }));
  }
  return out;
}

/// ⊗ of the contractions by name.
std::vector<Row> combining_rows() {
  return rows_named({"mul", "add", "sub", "div", "max", "min", "squared_difference", "abs_difference"});
}

/// ⊕ of the contractions and reductions by name.
std::vector<Row> folding_rows() { return rows_named({"add", "mul", "max", "min", "logaddexp"}); }

/// Whether combining `z` with anything finite gives `z`, on either side.
bool annihilates(const std::string& combine, double z) {
  if (combine == "mul") return z == 0;
  if (combine == "add") return std::isinf(z);
  if (combine == "min") return z == -kInfinity;
  return combine == "max" && z == kInfinity;
}

/// Facts of folding by `fold` what `combine` makes of two operands: it distributes over `fold` in the operands in which
/// `combine` does; and where the fold of nothing annihilates, it does in the whole.
Facts pair_facts(const Row& combine, const Row& fold) {
  Facts facts;
  const double nothing = *fold.facts.identity;
  if (annihilates(combine.name, nothing)) facts.annihilator = nothing;
  const bool sums = fold.name == "add" && combine.facts.linear;
  facts.linear = sums;
  for (const Distribution& known : combine.facts.distributes_over) {
    const bool with_sub = fold.name == "add" && known.over == "sub";
    if (known.over == fold.name || with_sub) facts.distributes_over.push_back(known);
  }
  return facts;
}

/// A labelled contraction for each pair of combining and folding kernels; `contract` is the one of mul and add.
std::vector<Row> pair_rows() {
  std::vector<Row> rows;
  for (const Row& combine : combining_rows()) {
    for (const Row& fold : folding_rows()) {
      if (combine.name == "mul" && fold.name == "add") continue;
      rows.push_back({.name = "contract_" + combine.name + "_" + fold.name,
                      .summary = combine.name + " of two operands, folded by " + fold.name +
                                 " over the letters that the result lacks",
                      .operands = 2,
                      .parameters = "l",
                      .form = Form::kLabelled,
                      .domain = std::max(combine.domain, fold.domain),
                      .flops_per_element = combine.flops_per_element + fold.flops_per_element,
                      .facts = pair_facts(combine, fold),
                      .labels = contraction_letters,
                      .combine = combine.name,
                      .fold = fold.name});
    }
  }
  return rows;
}

/// Letters of a contraction by an expression: `ij,jk->ik:exp(x0-x1)`.
Labels expression_letters(const Kernel& kernel) {
  const std::string& label = kernel.label(0);
  return contraction_letters({kernel.name, {label.substr(0, label.find(':'))}});
}

DType expression_dtype(const Kernel& kernel, DType from) { return expression_of(kernel).result_dtype(from); }

/// Scalar expressions: of each element, and of two operands folded by each kernel that folds.
std::vector<Row> expression_rows() {
  std::vector<Row> rows{{.name = "expression",
                         .summary = "a scalar expression of i operands x0, x1, ...: `exp(x0-x1)*2`",
                         .operands = 0,
                         .parameters = "il",
                         .flops = [](const Kernel& kernel) { return expression_of(kernel).flops(); },
                         .dtype = expression_dtype}};
  for (const Row& fold : folding_rows()) {
    const int64_t each = fold.flops_per_element;
    rows.push_back({.name = "expression_" + fold.name,
                    .summary = "a scalar expression of two operands, folded by " + fold.name +
                               " over the letters that the result lacks: `ij,jk->ik:exp(x0-x1)`",
                    .operands = 2,
                    .parameters = "l",
                    .form = Form::kLabelled,
                    .domain = fold.domain,
                    .labels = expression_letters,
                    .combine = "expression",
                    .fold = fold.name,
                    .flops = [each](const Kernel& kernel) { return expression_of(kernel).flops() + each; },
                    .dtype = expression_dtype});
  }
  return rows;
}

/// What permutes axes and takes diagonals, without a fold and with each.
std::vector<Row> reduction_rows() {
  std::vector<Row> rows{{.name = "arrange",
                         .summary = "permutes axes; a letter that occurs twice takes the diagonal",
                         .parameters = "l",
                         .form = Form::kLabelled,
                         .flops_per_element = 0,
                         .facts = moves(),
                         .labels = arrangement_letters}};
  for (const Row& fold : folding_rows()) {
    Facts facts{.distributes_over = {{fold.name}}};
    if (fold.name == "add") facts = linear();
    if (fold.name == "mul") facts.distributes_over.push_back({"div"});
    rows.push_back({.name = "reduce_" + fold.name,
                    .summary = "folds by " + fold.name + " over the letters that the result lacks",
                    .parameters = "l",
                    .form = Form::kLabelled,
                    .domain = fold.domain,
                    .flops_per_element = fold.flops_per_element,
                    .facts = facts,
                    .labels = reduction_letters,
                    .fold = fold.name});
  }
  return rows;
}

std::vector<Row> algebraic_rows() {
  const Facts multiplicative{.distributes_over = {{"mul"}, {"div"}}};
  return {
      {.name = "scale", .summary = "n x", .parameters = "n", .facts = linear()},
      {.name = "negate", .summary = "-x", .facts = linear()},
      {.name = "square", .summary = "x²", .facts = multiplicative},
      {.name = "reciprocal", .summary = "1 / x", .domain = Domain::kFloating, .facts = multiplicative},
      {.name = "abs", .summary = "|x|", .domain = Domain::kOrdered, .facts = multiplicative},
      {.name = "conjugate",
       .summary = "complex conjugate",
       .flops_per_element = 0,
       .facts = {.distributes_over = {{"add"}, {"sub"}, {"mul"}, {"div"}}}},
      {.name = "detach", .summary = "x, as a constant to gradients", .flops_per_element = 0, .facts = moves()},
      {.name = "sign",
       .summary = "-1, 0 or 1",
       .domain = Domain::kOrdered,
       .facts = {.distributes_over = {{"mul"}, {"max"}, {"min"}}}},
      {.name = "is_zero", .summary = "1 where x = 0, else 0", .facts = {}},
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
       .labels = letters("ij->i"),
       .fold = "add"},
      {.name = "total",
       .summary = "sum of all elements",
       .form = Form::kLabelled,
       .facts = linear(),
       .labels = letters("ij->"),
       .fold = "add"},
      {.name = "row_max",
       .summary = "largest element of each row; the least value there is for an empty one",
       .form = Form::kLabelled,
       .domain = Domain::kOrdered,
       .facts = {.distributes_over = {{"max"}}},
       .labels = letters("ij->i"),
       .fold = "max"},
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
      {.name = "expand",
       .summary = "a new axis at position i, of extent i, along which the elements repeat",
       .parameters = "ii",
       .form = Form::kInsertAxis,
       .flops_per_element = 0,
       .facts = moves()},
      {.name = "embed_diagonal",
       .summary = "a new axis at position i: the elements stand on its diagonal with axis i, zeros beside it",
       .parameters = "ii",
       .form = Form::kEmbed,
       .flops_per_element = 0,
       .facts = linear()},
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
  for (auto part : {contraction_rows(), pair_rows(), expression_rows(), arithmetic_rows(), algebraic_rows(),
                    function_rows(), reduction_rows(), axis_rows(), loss_rows(), update_rows()}) {
    rows.insert(rows.end(), std::make_move_iterator(part.begin()), std::make_move_iterator(part.end()));
  }
  return rows;
}

}  // namespace joinsum::kernels

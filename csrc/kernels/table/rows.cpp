#include "kernels/table/rows.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "kernels/table/expression_kernel.h"

namespace joinsum::kernels::table {

namespace {

std::function<Subscripts(const Kernel&)> letters(const std::string& text) {
  return [labels = Subscripts::parse(text)](const Kernel&) { return labels; };
}

/// Letters of a contraction: two operands, no letter twice in one of them.
Subscripts contraction_letters(const Kernel& kernel) {
  Subscripts labels = Subscripts::parse(kernel.label(0));
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

/// Letters of a kernel that permutes axes, takes diagonals and reduces: one operand, whose letters may repeat.
Subscripts reduction_letters(const Kernel& kernel) {
  Subscripts labels = Subscripts::parse(kernel.label(0));
  JOINSUM_KERNEL_CHECK(labels.operands.size() == 1, kernel.name, ": one operand is reduced: labels=", labels.text());
  return labels;
}

/// The same without a reduction.
Subscripts arrangement_letters(const Kernel& kernel) {
  Subscripts labels = reduction_letters(kernel);
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
  // Truth is a question that complex numbers answer, too: whether they are not 0.
  JOINSUM_KERNEL_CHECK(!is_complex(from) || is_complex(*to) || *to == DType::kBool,
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
       .reduction = "add"},
      {.name = "matmul_tn",
       .summary = "matrix product AᵀB",
       .operands = 2,
       .form = Form::kLabelled,
       .flops_per_element = 2,
       .facts = product,
       .labels = letters("ji,jk->ik"),
       .combine = "mul",
       .reduction = "add"},
      {.name = "matmul_nt",
       .summary = "matrix product ABᵀ",
       .operands = 2,
       .form = Form::kLabelled,
       .flops_per_element = 2,
       .facts = product,
       .labels = letters("ij,kj->ik"),
       .combine = "mul",
       .reduction = "add"},
      {.name = "contract",
       .summary = "product of two operands, summed over the letters that the result lacks",
       .operands = 2,
       .parameters = "l",
       .form = Form::kLabelled,
       .flops_per_element = 2,
       .facts = product,
       .labels = contraction_letters,
       .combine = "mul",
       .reduction = "add"},
  };
}

/// ⊗ of the contractions, in the order of their steps.
std::vector<Row> combining_rows() {
  std::vector<Row> rows = arithmetic_rows();
  std::erase_if(rows, [](const Row& row) { return !row.joins_by; });
  std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return *a.joins_by < *b.joins_by; });
  return rows;
}

/// ⊕ of the contractions and reductions, in the order of their steps.
std::vector<Row> arithmetic_reductions() {
  std::vector<Row> rows = arithmetic_rows();
  std::erase_if(rows, [](const Row& row) { return !row.reduces_by; });
  std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return *a.reduces_by < *b.reduces_by; });
  return rows;
}

/// Whether combining `z` with anything finite gives `z`, on either side.
bool annihilates(const Row& combine, double z) {
  const auto gives_z = [&](double finite) {
    const std::array<double, 2> left{z, finite}, right{finite, z};
    return combine.element(left.data(), nullptr) == z && combine.element(right.data(), nullptr) == z;
  };
  return gives_z(-3) && gives_z(-0.5) && gives_z(0.5) && gives_z(2);
}

/// Facts of reducing by `reduction` what `combine` makes of two operands: it distributes over `reduction` in the
/// operands in which `combine` does; and where the reduction of nothing annihilates, it does in the whole.
Facts pair_facts(const Row& combine, const Row& reduction) {
  Facts facts;
  const double nothing = *reduction.facts.identity;
  if (annihilates(combine, nothing)) facts.annihilator = nothing;
  const bool sums = reduction.name == "add" && combine.facts.linear;
  facts.linear = sums;
  facts.additive = reduction.name == "add" && combine.facts.additive;
  for (const Distribution& known : combine.facts.distributes_over) {
    const bool with_sub = reduction.name == "add" && known.over == "sub";
    if (known.over == reduction.name || with_sub) facts.distributes_over.push_back(known);
  }
  return facts;
}

/// A labelled contraction for each pair of combining and reducing kernels; `contract` is the one of mul and add.
std::vector<Row> pair_rows() {
  std::vector<Row> rows;
  for (const Row& combine : combining_rows()) {
    for (const Row& reduction : arithmetic_reductions()) {
      if (combine.name == "mul" && reduction.name == "add") continue;
      rows.push_back({.name = contraction_name(combine.name, reduction.name),
                      .summary = combine.name + " of two operands, reduced by " + reduction.name +
                                 " over the letters that the result lacks",
                      .operands = 2,
                      .parameters = "l",
                      .form = Form::kLabelled,
                      .domain = std::max(combine.domain, reduction.domain),
                      .flops_per_element = combine.flops_per_element + reduction.flops_per_element,
                      .facts = pair_facts(combine, reduction),
                      .labels = contraction_letters,
                      .combine = combine.name,
                      .reduction = reduction.name});
    }
  }
  return rows;
}

/// Letters of a contraction by an expression: `ij,jk->ik:exp(x0-x1)`.
Subscripts expression_letters(const Kernel& kernel) {
  const std::string& label = kernel.label(0);
  return contraction_letters({kernel.name, {label.substr(0, label.find(':'))}});
}

DType expression_dtype(const Kernel& kernel, DType from) { return expression_of(kernel).result_dtype(from); }

/// Scalar expressions: of each element, and of two operands with each reduction.
std::vector<Row> expression_rows() {
  std::vector<Row> rows{{.name = "expression",
                         .summary = "a scalar expression of i operands x0, x1, ...: `exp(x0-x1)*2`",
                         .operands = 0,
                         .parameters = "il",
                         .flops = [](const Kernel& kernel) { return expression_of(kernel).flops(); },
                         .dtype = expression_dtype}};
  for (const Row& reduction : arithmetic_reductions()) {
    const int64_t each = reduction.flops_per_element;
    rows.push_back({.name = contraction_name("expression", reduction.name),
                    .summary = "a scalar expression of two operands, reduced by " + reduction.name +
                               " over the letters that the result lacks: `ij,jk->ik:exp(x0-x1)`",
                    .operands = 2,
                    .parameters = "l",
                    .form = Form::kLabelled,
                    .domain = reduction.domain,
                    .labels = expression_letters,
                    .combine = "expression",
                    .reduction = reduction.name,
                    .flops = [each](const Kernel& kernel) { return expression_of(kernel).flops() + each; },
                    .dtype = expression_dtype});
  }
  return rows;
}

/// What permutes axes and takes diagonals, without a reduction and with each.
std::vector<Row> reduction_rows() {
  std::vector<Row> rows{{.name = "arrange",
                         .summary = "permutes axes; a letter that occurs twice takes the diagonal",
                         .parameters = "l",
                         .form = Form::kLabelled,
                         .flops_per_element = 0,
                         .facts = moves(),
                         .labels = arrangement_letters}};
  for (const Row& reduction : arithmetic_reductions()) {
    Facts facts{.distributes_over = {{reduction.name}}};
    if (reduction.name == "add") facts = linear();
    if (reduction.name == "mul") facts.distributes_over.push_back({"div"});
    rows.push_back({.name = reduction_name(reduction.name),
                    .summary = "reduces by " + reduction.name + " over the letters that the result lacks",
                    .parameters = "l",
                    .form = Form::kLabelled,
                    .domain = reduction.domain,
                    .flops_per_element = reduction.flops_per_element,
                    .facts = facts,
                    .labels = reduction_letters,
                    .reduction = reduction.name});
  }
  return rows;
}

std::vector<Row> axis_rows() {
  return {
      {.name = "row_sum",
       .summary = "sum of each row",
       .form = Form::kLabelled,
       .facts = linear(),
       .labels = letters("ij->i"),
       .reduction = "add"},
      {.name = "total",
       .summary = "sum of all elements",
       .form = Form::kLabelled,
       .facts = linear(),
       .labels = letters("ij->"),
       .reduction = "add"},
      {.name = "row_max",
       .summary = "largest element of each row; the least value there is for an empty one",
       .form = Form::kLabelled,
       .domain = Domain::kOrdered,
       .facts = {.distributes_over = {{"max"}}},
       .labels = letters("ij->i"),
       .reduction = "max"},
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
       .facts = {.associative = true, .additive = true, .distributes_over = {{"max"}, {"min"}}}},
      {.name = "cast",
       .summary = "the same values in another dtype",
       .parameters = "l",
       .flops_per_element = 0,
       .dtype = cast_dtype,
       .derivative = {"cast(d)"}},
  };
}

}  // namespace

std::string reduction_name(const std::string& reduction) { return "reduce_" + reduction; }

std::string contraction_name(const std::string& join, const std::string& reduction) {
  if (join == "mul" && reduction == "add") return "contract";
  return (join == "expression" ? join : "contract_" + join) + "_" + reduction;
}

std::vector<Row> builtin_rows() {
  std::vector<Row> rows = identity_rows();
  for (auto part : {contraction_rows(), pair_rows(), expression_rows(), arithmetic_rows(), algebraic_rows(),
                    function_rows(), reduction_rows(), axis_rows(), loss_rows(), update_rows()}) {
    rows.insert(rows.end(), std::make_move_iterator(part.begin()), std::make_move_iterator(part.end()));
  }
  return rows;
}

}  // namespace joinsum::kernels::table

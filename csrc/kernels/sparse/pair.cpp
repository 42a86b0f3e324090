#include "kernels/sparse/pair.h"

#include "base/check.h"
#include "kernels/dense/dense.h"
#include "kernels/dense/letters.h"
#include "kernels/sparse/query.h"
#include "sparse/program/join.h"

namespace joinsum::kernels::sparse {

namespace program = joinsum::sparse::program;

namespace {

/// The letters of all axes: of the kernel's label, or of equal places, behind those of the batch. An axis of one
/// element that is repeated along a longer one has a letter of its own, over which is summed.
table::Subscripts labels_of(const table::Kernel& kernel, const at::Tensor& left, const at::Tensor& right,
                            int64_t batch) {
  const table::Row& row = table::row_of(kernel);
  const bool labelled = row.form == table::Form::kLabelled;
  const table::Subscripts own = labelled ? row.labels(kernel) : table::Subscripts{{"", ""}, ""};
  const std::string free = dense::unused_letters(labelled ? own.text() : "");
  const int64_t paired = labelled ? batch : left.dim();
  JOINSUM_KERNEL_CHECK(std::ssize(free) >= 2 * paired,
                       "sparse arrays: no letters are left for all axes: axes=", paired);
  table::Subscripts out{{"", ""}, ""};
  for (int64_t axis = 0; axis < paired; ++axis) {
    const int64_t extent = left.size(axis) == 1 ? right.size(axis) : left.size(axis);
    out.result += free[2 * axis];
    out.operands[0] += free[left.size(axis) == extent ? 2 * axis : 2 * axis + 1];
    out.operands[1] += free[right.size(axis) == extent ? 2 * axis : 2 * axis + 1];
  }
  return {{out.operands[0] + own.operands[0], out.operands[1] + own.operands[1]}, out.result + own.result};
}

std::vector<std::string> names_of(const std::string& letters) {
  std::vector<std::string> names;
  for (const char letter : letters) names.emplace_back(1, letter);
  return names;
}

program::ExpressionPtr read(size_t operand, const std::string& letters) {
  return program::make_input("x" + std::to_string(operand), names_of(letters));
}

}  // namespace

at::Tensor of_pair(const table::Kernel& kernel, const at::Tensor& left, const at::Tensor& right, int64_t batch) {
  const table::Subscripts labels = labels_of(kernel, left, right, batch);
  const std::string join = table::contracts(kernel) ? "mul" : kernel.name;
  program::ExpressionPtr value = program::joined(join, {read(0, labels.operands[0]), read(1, labels.operands[1])},
                                                 dense::dtype_of(left.scalar_type()));
  const std::string& first = labels.operands[0];
  std::string summed = first + dense::select(labels.operands[1], [&](char c) { return !dense::has(first, c); });
  summed = dense::select(summed, [&](char c) { return !dense::has(labels.result, c); });
  if (!summed.empty()) {
    value = program::make_aggregate(joinsum::sparse::operators::Operator::kAdd, names_of(summed), value);
  }
  const double zero = 0;
  return result_of({.expression = program::text_of(value), .output = labels.result, .letters = {}, .extents = {}},
                   {left, right}, {zero, zero});
}

}  // namespace joinsum::kernels::sparse

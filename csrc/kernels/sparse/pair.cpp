#include "kernels/sparse/pair.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/sparse/query.h"
#include "sparse/program/join.h"

namespace joinsum::kernels::sparse {

namespace program = joinsum::sparse::program;

namespace {

/// Letters that no label uses.
class NewLetters {
 public:
  explicit NewLetters(std::string used) : used_(std::move(used)) {}

  char next() {
    constexpr const char* kAll = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    const size_t at = std::string(kAll).find_first_not_of(used_);
    JOINSUM_KERNEL_CHECK(at != std::string::npos, "sparse arrays: more than 52 axes in one product");
    used_ += kAll[at];
    return kAll[at];
  }

 private:
  std::string used_;
};

/// Letters of the axes of each operand, and of the result.
struct Labels {
  std::vector<std::string> operands;
  std::string result;
};

/// An axis of one element that is repeated along a longer one has a letter of its own, over which is summed.
Labels labels_of(const table::Kernel& kernel, const at::Tensor& left, const at::Tensor& right, int64_t batch) {
  const table::Row& row = table::row_of(kernel);
  table::Subscripts own;
  if (row.form == table::Form::kLabelled) own = row.labels(kernel);
  NewLetters letters(own.result + (own.operands.empty() ? "" : own.operands[0] + own.operands[1]));
  const int64_t broadcast = row.form == table::Form::kLabelled ? batch : left.dim();
  Labels out{.operands = {"", ""}, .result = ""};
  for (int64_t axis = 0; axis < broadcast; ++axis) {
    const int64_t extent = left.size(axis) == 1 ? right.size(axis) : left.size(axis);
    out.result += letters.next();
    for (size_t i = 0; i < 2; ++i) {
      const bool whole = (i == 0 ? left : right).size(axis) == extent;
      out.operands[i] += whole ? out.result.back() : letters.next();
    }
  }
  if (row.form != table::Form::kLabelled) return out;
  for (size_t i = 0; i < 2; ++i) out.operands[i] += own.operands[i];
  out.result += own.result;
  return out;
}

program::ExpressionPtr read(size_t operand, const std::string& letters) {
  std::vector<std::string> indices;
  for (const char letter : letters) indices.emplace_back(1, letter);
  return program::make_input("x" + std::to_string(operand), std::move(indices));
}

}  // namespace

at::Tensor of_pair(const table::Kernel& kernel, const at::Tensor& left, const at::Tensor& right, int64_t batch) {
  const Labels labels = labels_of(kernel, left, right, batch);
  const std::string join = table::contracts(kernel) ? "mul" : kernel.name;
  program::ExpressionPtr value = program::joined(join, {read(0, labels.operands[0]), read(1, labels.operands[1])});
  std::vector<std::string> summed;
  for (const std::string& letters : labels.operands) {
    for (const char letter : letters) {
      const bool known = std::ranges::find(summed, std::string(1, letter)) != summed.end();
      if (!known && labels.result.find(letter) == std::string::npos) summed.emplace_back(1, letter);
    }
  }
  if (!summed.empty()) value = program::make_aggregate(joinsum::sparse::operators::Operator::kAdd, summed, value);
  const double zero = 0;
  return result_of({.expression = program::text_of(value), .output = labels.result, .letters = {}, .extents = {}},
                   {left, right}, {zero, zero});
}

}  // namespace joinsum::kernels::sparse

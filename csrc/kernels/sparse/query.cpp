#include "kernels/sparse/query.h"

#include <bit>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include <ATen/Parallel.h>

#include "base/check.h"
#include "kernels/sparse/arrays.h"
#include "kernels/sparse/compressed_rows.h"
#include "sparse/run.h"

namespace joinsum::kernels::sparse {
namespace {

using joinsum::sparse::InputTensor;
using joinsum::sparse::PlanOptions;
using joinsum::sparse::Program;
using joinsum::sparse::ProgramPlan;
using joinsum::sparse::Runner;
using joinsum::sparse::TensorPtr;
using joinsum::sparse::tensor::LevelFormat;
using joinsum::sparse::tensor::Tensor;

constexpr const char* kResult = "z";
constexpr size_t kMostPlans = 512;
constexpr double kNoDenseLevels = std::numeric_limits<double>::infinity();

/// A plan without the tensors that it was made for.
struct Planned {
  std::unique_ptr<Program> program;
  ProgramPlan plan;
};

std::string name_of_operand(size_t operand) { return "x" + std::to_string(operand); }

std::shared_ptr<const Planned> planned(const Query& query, const std::vector<TensorPtr>& operands) {
  std::map<std::string, int64_t> sizes;
  for (size_t i = 0; i < query.letters.size(); ++i) sizes[std::string(1, query.letters[i])] = query.extents[i];
  std::map<std::string, InputTensor> inputs;
  for (size_t i = 0; i < operands.size(); ++i) {
    InputTensor& input = inputs[name_of_operand(i)];
    input = {operands[i]->shape, operands[i]->fill, operands[i], static_cast<double>(operands[i]->stored()), {}};
  }
  std::vector<std::string> output;
  for (const char letter : query.output) output.emplace_back(1, letter);
  PlanOptions options;
  options.logical.estimator = joinsum::sparse::statistics::estimator_named("chain");
  // It is one of the queries of a plan.
  options.logical.whole = true;
  if (query.dense && !output.empty()) {
    options.physical.formats[kResult] = std::vector<LevelFormat>(output.size(), LevelFormat::kDense);
  }
  // Which elements a sparse result has must not depend on how it is divided: those that are computed, of any value.
  if (!query.dense) options.physical.cutoffs.dense = kNoDenseLevels;
  const std::vector<joinsum::sparse::Query> queries{
      {kResult, joinsum::sparse::program::parse_expression(query.expression), output}};
  auto out = std::make_shared<Planned>();
  const Program whole(sizes, inputs, queries);
  out->plan = plan(whole, options);
  out->program = std::make_unique<Program>(whole.without_entries());
  return out;
}

/// What a plan depends on: the query, and of each operand shape, fill, levels, dtype, and entries within a factor of
/// two.
std::string key_of(const Query& query, const std::vector<TensorPtr>& operands) {
  std::string key = concatenate(query.expression, ">", query.output, query.letters, query.extents, query.dense);
  for (const TensorPtr& tensor : operands) {
    const auto entries = static_cast<uint64_t>(tensor->stored());
    key += concatenate(";", tensor->shape, std::bit_cast<uint64_t>(tensor->fill), name_of(tensor->dtype()),
                       std::bit_width(entries));
    for (const auto& level : tensor->levels) key += name_of(level.format)[0];
  }
  return key;
}

std::shared_ptr<const Planned> known_plan(const Query& query, const std::vector<TensorPtr>& operands) {
  static std::mutex mutex;
  static std::map<std::string, std::shared_ptr<const Planned>> plans;
  const std::string key = key_of(query, operands);
  {
    const std::scoped_lock lock(mutex);
    const auto found = plans.find(key);
    if (found != plans.end()) return found->second;
  }
  auto made = planned(query, operands);
  const std::scoped_lock lock(mutex);
  if (plans.size() >= kMostPlans) plans.clear();
  plans[key] = made;
  return made;
}

/// All elements, row-major.
at::Tensor dense_of(const Tensor& tensor, const std::vector<int64_t>& shape) {
  std::vector<int64_t> axes = all_dims(static_cast<int64_t>(shape.size()));
  const std::vector<LevelFormat> formats(axes.size(), LevelFormat::kDense);
  return tensor_of(reformatted(tensor, axes, formats).values).view(shape);
}

/// The factors of a sum of products of two matrices, A B, by their numbers.
struct MatrixProduct {
  size_t left = 0;
  size_t right = 0;
  bool left_transposed = false;  ///< whether the operand is Aᵀ
  bool right_transposed = false;
};

std::optional<MatrixProduct> matrix_product_of(const Query& query) {
  using joinsum::sparse::operators::Operator;
  using Kind = joinsum::sparse::Expression::Kind;
  if (query.dense || query.output.size() != 2) return std::nullopt;
  const auto sum = joinsum::sparse::program::parse_expression(query.expression);
  if (sum->kind != Kind::kAggregate || sum->op != Operator::kAdd || sum->indices.size() != 1) return std::nullopt;
  const auto& product = sum->child();
  if (product->kind != Kind::kMap || product->op != Operator::kMultiply || product->children.size() != 2) {
    return std::nullopt;
  }
  const std::string &reduced = sum->indices.front(), row(1, query.output[0]), column(1, query.output[1]);
  // Whether `factor` is a matrix of these two indices, and in which order.
  const auto is_of = [](const auto& factor, const std::string& first, const std::string& second) {
    return factor->kind == Kind::kInput && factor->indices == std::vector<std::string>{first, second};
  };
  for (const size_t left : {size_t{0}, size_t{1}}) {
    const auto &a = product->children[left], &b = product->children[1 - left];
    const bool is_left = is_of(a, row, reduced) || is_of(a, reduced, row);
    if (!is_left || !(is_of(b, reduced, column) || is_of(b, column, reduced))) continue;
    return MatrixProduct{std::stoul(a->tensor.substr(1)), std::stoul(b->tensor.substr(1)), is_of(a, reduced, row),
                         is_of(b, column, reduced)};
  }
  return std::nullopt;
}

/// A B by the loops of compressed rows; undefined where these do not take the operands.
at::Tensor by_rows(const MatrixProduct& product, const std::vector<TensorPtr>& tensors) {
  const auto rows_of = [&](size_t operand, bool transposed) {
    const TensorPtr& matrix = tensors[operand];
    return transposed ? CompressedRows::of_transposed(matrix) : CompressedRows::of(matrix);
  };
  if (!at::isFloatingType(tensor_of(tensors[product.left]->values).scalar_type())) return {};
  const auto left = rows_of(product.left, product.left_transposed);
  const auto right = rows_of(product.right, product.right_transposed);
  return left && right ? coo_of(to_coordinates(left->times(*right))) : at::Tensor();
}

}  // namespace

at::Tensor result_of(const Query& query, at::TensorList operands, c10::ArrayRef<double> fills) {
  std::vector<TensorPtr> tensors;
  std::map<std::string, TensorPtr> given;
  for (size_t i = 0; i < operands.size(); ++i) {
    TensorPtr tensor;
    for (size_t before = 0; before < i && tensor == nullptr; ++before) {
      if (operands[before].is_same(operands[i]) && fills[before] == fills[i]) tensor = tensors[before];
    }
    if (tensor == nullptr) tensor = std::make_shared<Tensor>(levels_of(operands[i], fills[i]));
    tensors.push_back(tensor);
    given[name_of_operand(i)] = tensor;
  }
  if (const auto product = matrix_product_of(query)) {
    const at::Tensor found = by_rows(*product, tensors);
    if (found.defined()) return found;
  }
  const auto known = known_plan(query, tensors);
  const joinsum::sparse::RunOptions options{.threads = at::get_num_threads()};
  const TensorPtr result = Runner(*known->program, known->plan).run(given, options, {.adapts = false}).at(kResult);
  if (!query.dense) return coo_of(to_coordinates(*result));
  return dense_of(*result, known->program->result(kResult).shape);
}

}  // namespace joinsum::kernels::sparse

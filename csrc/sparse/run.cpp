#include "sparse/run.h"

#include <algorithm>
#include <chrono>

#include "sparse/tensor/diagonal.h"

namespace joinsum::sparse {
namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

std::vector<int64_t> identity(size_t rank) { return all_dims(static_cast<int64_t>(rank)); }

}  // namespace

Tensor arranged(const Tensor& tensor, const std::vector<std::vector<int64_t>>& groups, const FormatCutoffs& cutoffs) {
  std::vector<int64_t> axes;
  for (const auto& group : groups) axes.push_back(group.front());
  const bool diagonal = axes.size() != tensor.shape.size();
  const std::vector<LevelFormat> lists(axes.size(), LevelFormat::kSortedList);
  Tensor sorted;
  if (diagonal) {
    sorted = from_coordinates(on_diagonals(to_coordinates(tensor), groups), identity(axes.size()), lists, tensor.fill);
  } else {
    sorted = reformatted(tensor, axes, lists);
    Dims shape;
    for (const int64_t axis : axes) shape.push_back(tensor.shape[axis]);
    sorted.shape = std::move(shape);
    sorted.axes = identity(axes.size());
  }
  std::vector<LevelFormat> formats;
  double outer = 1, elements = 1;
  bool changed = false;
  for (const Level& level : sorted.levels) {
    const auto entries = static_cast<double>(level.coordinates.size());
    const auto size = static_cast<double>(level.size);
    const double density = outer == 0 || size == 0 ? 0 : entries / outer / size;
    elements *= size;
    const bool fits = elements <= cutoffs.largest_dense;
    formats.push_back(!fits || density <= cutoffs.bytemap ? LevelFormat::kSortedList
                      : density <= cutoffs.dense          ? LevelFormat::kBytemap
                                                          : LevelFormat::kDense);
    changed = changed || formats.back() != LevelFormat::kSortedList;
    outer = entries;
  }
  return changed ? reformatted(sorted, sorted.axes, formats) : sorted;
}

TensorPtr Runner::input(const std::string& name, const std::map<std::string, TensorPtr>& given) const {
  const InputTensor& planned = program_.tensors().at(name);
  const auto found = given.find(name);
  const TensorPtr tensor = found == given.end() ? planned.entries : found->second;
  JOINSUM_USER_CHECK(tensor != nullptr,
                     "sparse program: only statistics are given, so that it cannot run: tensor=", name);
  JOINSUM_USER_CHECK(tensor->shape == planned.shape && tensor->fill == planned.fill,
                     "sparse program: a tensor of another shape or fill than planned: tensor=", name,
                     ", planned=", planned.shape, " ", planned.fill, ", given=", tensor->shape, " ", tensor->fill);
  return tensor;
}

TensorPtr Runner::operand(const PlannedAccess& access, const std::map<std::string, TensorPtr>& results,
                          const std::map<std::string, TensorPtr>& given) {
  const auto result = results.find(access.tensor);
  const bool is_result = result != results.end();
  const TensorPtr tensor = is_result ? result->second : input(access.tensor, given);
  const bool diagonal = access.axes.size() != tensor->shape.size();
  const bool sorted = tensor->levels.size() < 2 || tensor->levels.front().format != LevelFormat::kSortedList;
  if (!diagonal && access.axes == tensor->axes && (is_result || sorted)) return tensor;
  if (is_result) return std::make_shared<Tensor>(arranged(*tensor, access.diagonal, FormatCutoffs()));
  std::string key = access.tensor;
  for (const auto& group : access.diagonal) key += concatenate(" ", group);
  Converted& converted = converted_[key];
  if (converted.source != tensor) {
    converted = {tensor, std::make_shared<Tensor>(arranged(*tensor, access.diagonal, FormatCutoffs()))};
  }
  return converted.made;
}

TensorPtr Runner::run_query(const PlannedQuery& query, size_t number, const std::map<std::string, TensorPtr>& results,
                            const std::map<std::string, TensorPtr>& given, RunOptions options) {
  const PhysicalQuery& physical = query.physical[number];
  std::vector<TensorPtr> operands;
  std::vector<std::vector<LevelFormat>> formats;
  KernelArguments arguments;
  for (const PlannedAccess& access : physical.accesses) {
    operands.push_back(operand(access, results, given));
    arguments.operands.push_back(operands.back().get());
    formats.emplace_back();
    for (const Level& level : operands.back()->levels) formats.back().push_back(level.format);
  }
  for (const int64_t loop : physical.loops) arguments.extents.push_back(query.logical.space.sizes[loop]);
  const Kernel kernel = kernel_of(query.logical.queries[number], physical, formats);
  for (const double iterations : physical.iterations) options.iterations += iterations;
  kernels::Run done = kernels::run(kernel, arguments, options);
  seconds_.compile += done.compile_seconds;
  if (done.compiled) compiled_.push_back(physical.name);
  return std::make_shared<Tensor>(std::move(done.result));
}

std::map<std::string, TensorPtr> Runner::run(const std::map<std::string, TensorPtr>& given, const RunOptions& options) {
  const auto start = Clock::now();
  seconds_ = {};
  compiled_.clear();
  std::map<std::string, TensorPtr> results, outputs;
  for (const PlannedQuery& query : plan_.queries) {
    for (size_t i = 0; i < query.physical.size(); ++i) {
      const std::string& name = query.logical.queries[i].name;
      const auto same = plan_.same_as.find(name);
      results[name] =
          same == plan_.same_as.end() ? run_query(query, i, results, given, options) : results.at(same->second);
      true_entries_[name] = static_cast<double>(results[name]->stored());
    }
    const std::string& name = query.logical.queries.back().name;
    outputs[name] = results.at(name);
  }
  seconds_.run = since(start) - seconds_.compile;
  return outputs;
}

}  // namespace joinsum::sparse

#include "sparse/run.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <mutex>
#include <tuple>

#include "sparse/tensor/diagonal.h"
#include "sparse/tensor/elements.h"

namespace joinsum::sparse {
namespace {

using Clock = std::chrono::steady_clock;

/// A query is planned again where its loops run more often than this, for each entry of the results that it reads and
/// in all: to count these and to plan takes as long.
constexpr double kMostPerEntry = 8;
constexpr double kLeastIterations = 20'000;

double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

std::vector<int64_t> identity(size_t rank) { return all_dims(static_cast<int64_t>(rank)); }

/// Tensors as kernels read them, by the tensors that they were made of and groups of axes, as long as these live.
class ArrangedTensors {
 public:
  TensorPtr of(const TensorPtr& tensor, const std::vector<std::vector<int64_t>>& groups, bool stored_only) {
    const Key key{tensor.get(), groups, stored_only};
    {
      const std::scoped_lock lock(mutex_);
      const auto found = known_.find(key);
      if (found != known_.end() && found->second.source.lock() == tensor) return found->second.made;
    }
    const TensorPtr made = std::make_shared<Tensor>(arranged(*tensor, groups, FormatCutoffs(), stored_only));
    const std::scoped_lock lock(mutex_);
    // Those of tensors that are gone make room.
    std::erase_if(known_, [](const auto& each) { return each.second.source.expired(); });
    known_[key] = {tensor, made};
    return made;
  }

 private:
  using Key = std::tuple<const Tensor*, std::vector<std::vector<int64_t>>, bool>;
  struct Made {
    std::weak_ptr<const Tensor> source;
    TensorPtr made;
  };

  std::mutex mutex_;
  std::map<Key, Made> known_;
};

/// Never destroyed: arrays may belong to Python, which ends first.
ArrangedTensors& arranged_tensors() {
  static auto& all = *new ArrangedTensors;
  return all;
}

}  // namespace

Tensor arranged(const Tensor& tensor, const std::vector<std::vector<int64_t>>& groups, const FormatCutoffs& cutoffs,
                bool stored_only) {
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
  // Of places in the level: those of dense and bytemap levels above count whether anything is stored there or not.
  double places = 1;
  bool changed = false;
  for (const Level& level : sorted.levels) {
    const auto entries = static_cast<double>(level.coordinates.size());
    const double here = places * static_cast<double>(level.size);
    const double density = here == 0 || here > cutoffs.largest_dense ? 0 : entries / here;
    formats.push_back(density <= cutoffs.bytemap ? LevelFormat::kSortedList
                      : density <= cutoffs.dense ? LevelFormat::kBytemap
                                                 : LevelFormat::kDense);
    const bool is_last = formats.size() == sorted.levels.size();
    if (stored_only && is_last && density < 1 && formats.back() == LevelFormat::kDense) {
      formats.back() = LevelFormat::kBytemap;
    }
    const bool is_list = formats.back() == LevelFormat::kSortedList;
    changed = changed || !is_list;
    places = is_list ? entries : here;
  }
  return changed ? reformatted(sorted, sorted.axes, formats) : sorted;
}

TensorPtr Runner::input(const std::string& name, const std::map<std::string, TensorPtr>& given) const {
  const InputTensor& planned = program_.tensors().at(name);
  const auto found = given.find(name);
  const TensorPtr tensor = found == given.end() ? planned.entries : found->second;
  JOINSUM_USER_CHECK(tensor != nullptr,
                     "sparse program: only statistics are given, so that it cannot run: tensor=", name);
  JOINSUM_USER_CHECK(tensor->shape == planned.shape &&
                         (tensor->fill == planned.fill || (std::isnan(tensor->fill) && std::isnan(planned.fill))),
                     "sparse program: a tensor of another shape or fill than planned: tensor=", name,
                     ", planned=", planned.shape, " ", planned.fill, ", given=", tensor->shape, " ", tensor->fill);
  return tensor;
}

TensorPtr Runner::operand(const PlannedAccess& access, const std::map<std::string, TensorPtr>& results,
                          const std::map<std::string, TensorPtr>& given, bool stored_only) {
  const auto result = results.find(access.tensor);
  const bool is_result = result != results.end();
  const TensorPtr tensor = is_result ? result->second : input(access.tensor, given);
  const bool diagonal = access.axes.size() != tensor->shape.size();
  const bool sorted = tensor->levels.size() < 2 || tensor->levels.front().format != LevelFormat::kSortedList;
  if (!diagonal && access.axes == tensor->axes && (is_result || sorted)) return tensor;
  const auto made = [&](bool only_stored) -> TensorPtr {
    if (!is_result) return arranged_tensors().of(tensor, access.diagonal, only_stored);
    return std::make_shared<Tensor>(arranged(*tensor, access.diagonal, FormatCutoffs(), only_stored));
  };
  const TensorPtr usual = made(false);
  const bool fills = !usual->levels.empty() && usual->levels.back().format == LevelFormat::kDense;
  return fills && (stored_only || !finite(given)) ? made(true) : usual;
}

bool Runner::finite(const std::map<std::string, TensorPtr>& given) {
  if (!finite_) {
    finite_ = std::ranges::all_of(program_.tensors(),
                                  [&](const auto& each) { return tensor::all_finite(input(each.first, given)); });
  }
  return *finite_;
}

Runner::Adapted Runner::planned_again(const PlannedQuery& query, size_t number,
                                      const std::map<std::string, TensorPtr>& results) const {
  const LogicalQuery& logical = query.logical.queries[number];
  const PlanOptions& options = plan_.options;
  const Terms terms(options.logical.estimator, query.logical.space);
  StoredTensors stored = plan_.stored;
  Adapted made{logical, {}};
  for (const physical::Access& access : accesses_of(logical.body, stored)) {
    if (!access.is_result) continue;
    const TensorPtr& result = results.at(access.term->tensor);
    const auto entries = static_cast<double>(result->stored());
    const InputTensor known{result->shape, access.term->fill, result, entries, {}};
    const statistics::StatisticsPtr known_statistics =
        terms.estimator().relabelled(terms.estimator().of_tensor(known), access.term->indices, terms.space());
    const TermPtr leaf = terms.input(access.term->tensor, access.term->indices, access.term->fill, known_statistics,
                                     access.term->origins);
    made.logical.body = terms.replaced(made.logical.body, access.term, leaf);
    stored[access.term->tensor] = {entries, result->axes};
  }
  made.physical = plan_kernel_again(terms, made.logical, stored, options.physical);
  return made;
}

const Runner::Adapted* Runner::adapted(const PlannedQuery& query, size_t number,
                                       const std::map<std::string, TensorPtr>& results) {
  const LogicalQuery& logical = query.logical.queries[number];
  std::vector<int64_t> buckets;
  double entries = 0;
  for (const PlannedAccess& access : query.physical[number].accesses) {
    const auto found = results.find(access.tensor);
    if (found == results.end()) continue;
    // A diagonal of a result has no statistics of its own.
    if (access.axes.size() != found->second->shape.size()) return nullptr;
    const auto stored = static_cast<uint64_t>(found->second->stored());
    entries += static_cast<double>(stored);
    buckets.push_back(std::bit_width(stored));
  }
  if (buckets.empty() || query.physical[number].cost < kMostPerEntry * entries + kLeastIterations) return nullptr;
  const auto key = std::pair(logical.name, std::move(buckets));
  auto found = adapted_.find(key);
  if (found == adapted_.end()) found = adapted_.emplace(key, planned_again(query, number, results)).first;
  replanned_.push_back(logical.name);
  return &found->second;
}

TensorPtr Runner::run_query(const PlannedQuery& query, size_t number, const std::map<std::string, TensorPtr>& results,
                            const std::map<std::string, TensorPtr>& given, RunOptions options, bool adapts) {
  if (query.physical[number].maps_values) {
    TensorPtr result = mapped(query.logical.queries[number], query.physical[number], results, given, options);
    if (result != nullptr) return result;
  }
  const auto start = Clock::now();
  const Adapted* other = adapts ? adapted(query, number, results) : nullptr;
  seconds_.plan += since(start);
  const LogicalQuery& logical = other == nullptr ? query.logical.queries[number] : other->logical;
  const PhysicalQuery& physical = other == nullptr ? query.physical[number] : other->physical;
  std::vector<TensorPtr> operands;
  std::vector<std::vector<LevelFormat>> formats;
  KernelArguments arguments;
  // A result that lists its elements has those that operands store, whatever levels these are read in.
  const bool lists = !physical.formats.empty() && physical.formats.back() != LevelFormat::kDense;
  for (const PlannedAccess& access : physical.accesses) {
    operands.push_back(operand(access, results, given, lists));
    arguments.operands.push_back(operands.back().get());
    formats.emplace_back();
    for (const Level& level : operands.back()->levels) formats.back().push_back(level.format);
  }
  for (const int64_t loop : physical.loops) arguments.extents.push_back(query.logical.space.sizes[loop]);
  for (const double iterations : physical.iterations) options.iterations += iterations;
  Kernel kernel = kernel_of(logical, physical, formats, program_.dtype());
  // Zeros that nothing stores are none in a result between either, where an infinity may meet them.
  const bool is_between = number + 1 < query.physical.size();
  if (is_between && !lists && !kernel.formats.empty() && !finite(given)) {
    kernel.formats.back() = LevelFormat::kBytemap;
  }
  return std::make_shared<Tensor>(run_kernel(logical.name, kernel, arguments, std::move(options)));
}

Tensor Runner::run_kernel(const std::string& name, const Kernel& kernel, const KernelArguments& arguments,
                          RunOptions options) {
  // This run may be like the last one.
  LastRun& last = last_runs_[name];
  if (last.interpreted_seconds > 0) options.iterations = last.interpreted_seconds / kernels::kSecondsOfVisit;
  options.entries = last.entries;
  kernels::Run done = kernels::run(kernel, arguments, options);
  last = {done.interpreted_seconds, done.result.values.count()};
  seconds_.compile += done.compile_seconds;
  if (done.compiled) compiled_.push_back(name);
  return std::move(done.result);
}

TensorPtr Runner::mapped(const LogicalQuery& logical, const PhysicalQuery& physical,
                         const std::map<std::string, TensorPtr>& results, const std::map<std::string, TensorPtr>& given,
                         const RunOptions& options) {
  const std::string& name = physical.accesses.front().tensor;
  const auto found = results.find(name);
  const TensorPtr read = found == results.end() ? input(name, given) : found->second;
  const std::vector<int64_t> axes = identity(read->shape.size());
  if (!tensor::same_entries(*read, axes, physical.formats)) return nullptr;
  const int64_t count = read->values.count();
  const Tensor values{.shape = {count},
                      .axes = {0},
                      .levels = {{.format = LevelFormat::kDense, .size = count}},
                      .values = read->values,
                      .fill = read->fill};
  RunOptions each = options;
  each.iterations = static_cast<double>(count);
  Tensor result = reformatted(*read, axes, physical.formats);
  result.values =
      run_kernel(logical.name, kernel_of_values(logical, program_.dtype()), {{&values}, {count}}, std::move(each))
          .values;
  result.fill = logical.body->fill;
  return std::make_shared<Tensor>(std::move(result));
}

std::map<std::string, TensorPtr> Runner::run(const std::map<std::string, TensorPtr>& given, const RunOptions& options,
                                             const RunRequest& request) {
  const auto start = Clock::now();
  seconds_ = {};
  finite_.reset();
  compiled_.clear();
  replanned_.clear();
  std::map<std::string, TensorPtr> results, outputs;
  for (const PlannedQuery& query : plan_.queries) {
    for (size_t i = 0; i < query.physical.size(); ++i) {
      const std::string& name = query.logical.queries[i].name;
      const auto same = plan_.same_as.find(name);
      results[name] = same == plan_.same_as.end() ? run_query(query, i, results, given, options, request.adapts)
                                                  : results.at(same->second);
      true_entries_[name] = static_cast<double>(results[name]->stored());
    }
    const std::string& name = query.logical.queries.back().name;
    outputs[name] = results.at(name);
  }
  seconds_.run = since(start) - seconds_.compile - seconds_.plan;
  if (request.counts) {
    for (const auto& [name, result] : results) {
      true_entries_[name] = static_cast<double>(to_coordinates(*result, true).count());
    }
  }
  return request.every ? results : outputs;
}

}  // namespace joinsum::sparse

#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>

#include "sparse/kernels/interpret.h"
#include "sparse/kernels/nest/ranges.h"
#include "sparse/kernels/range_worker.h"

namespace joinsum::sparse::kernels {

/// One run of a kernel by workers, each of which takes ranges of the outermost loop.
template <class T>
class Execution {
 public:
  using MakeWorker = std::function<std::unique_ptr<RangeWorker<T>>()>;

  Execution(const Typed<T>& typed, const InterpreterOptions& options, MakeWorker make_worker)
      : typed_(typed),
        run_(typed.run),
        options_(options),
        make_worker_(std::move(make_worker)),
        reduce_{typed.run.kernel->aggregate},
        cuts_(cuts()) {}

  Tensor result() {
    workers_.resize(std::max(1, options_.threads));
    if (run_.way == ResultWay::kDense) return dense();
    if (run_.way == ResultWay::kWorkspace && run_.prefix == 0) return by_one_workspace();
    return by_pieces();
  }

 private:
  int64_t ranges() const { return std::ssize(cuts_) - 1; }
  bool partial() const { return !run_.outermost_is_output; }
  /// Whether ranges of the outermost loop are ranges of the elements of a dense result.
  bool has_dense_rows() const {
    const std::vector<int64_t>& output = run_.kernel->output;
    return run_.way == ResultWay::kDense && !output.empty() && output.front() == 0;
  }

  /// Ranges of an outermost loop of the output may depend on the number of threads, as no element is in two of them.
  std::vector<int64_t> cuts() const {
    constexpr int64_t kRangesOfThread = 8;
    constexpr int64_t kInCache = 1 << 16;  // elements
    const int64_t extent = run_.nest.loops[0].extent;
    int64_t count = options_.threads <= 1 ? 1 : kRangesOfThread * options_.threads;
    if (options_.threads <= 1 && has_dense_rows()) count = std::min(extent, run_.workspace_size / kInCache);
    if (run_.way == ResultWay::kWorkspace && run_.prefix == 0) count = std::max(1, options_.threads);
    if (partial()) count = partial_ranges();
    if (count <= 1) return extent > 0 ? std::vector<int64_t>{0, extent} : std::vector<int64_t>{0};
    nest::EntriesBelow below;
    for (std::vector<nest::LevelView>& levels : outermost_levels(run_)) below.add(std::move(levels));
    return below.cut(extent, count);
  }

  /// Ranges that reduce into elements of their own: not so many that reducing these is most of the work.
  int64_t partial_ranges() const {
    constexpr int64_t kMost = 32;
    const int64_t smallest = std::max(options_.range_entries, std::min(4 * run_.workspace_size, 4 * run_.entries));
    return std::clamp<int64_t>(run_.entries / std::max<int64_t>(1, smallest), 1, kMost);
  }

  RangeWorker<T>& worker(int index) {
    if (!workers_[index]) workers_[index] = make_worker_();
    return *workers_[index];
  }

  Tensor finished(std::vector<Level> levels, Values values) const {
    Tensor out{.shape = run_.extents, .levels = std::move(levels), .values = std::move(values)};
    out.axes.resize(run_.rank());
    std::iota(out.axes.begin(), out.axes.end(), int64_t{0});
    out.fill = nest::fill_from(typed_.fill);
    return out;
  }

  Tensor dense() {
    const int64_t own = partial() ? std::max<int64_t>(1, ranges()) : 1;
    // Elements that a range begins itself are still in the cache when they are reduced.
    const bool by_rows = has_dense_rows();
    const int64_t row = run_.nest.loops[0].stride;
    const auto elements = [&] {
      DenseElements<T> made(run_.workspace_size, typed_);
      if (!by_rows) made.begin(0, run_.workspace_size, typed_);
      return made;
    };
    std::vector<DenseElements<T>> parts(own);
    parts[0] = elements();
    nest::run_tasks(options_.threads, ranges(), [&](int thread, int64_t range) {
      DenseElements<T>& part = parts[partial() ? range : 0];
      if (partial() && range > 0) part = elements();
      if (by_rows) part.begin(cuts_[range] * row, cuts_[range + 1] * row, typed_);
      worker(thread).run_range({.dense = &part}, cuts_[range], cuts_[range + 1]);
    });
    DenseElements<T>& all = parts[0];
    for (int64_t range = 1; range < own; ++range) {
      for (int64_t i = 0; i < run_.workspace_size; ++i) {
        all.values[i] = reduce_.reduced(all.values[i], parts[range].values[i]);
        if (typed_.counted) all.counts[i] += parts[range].counts[i];
      }
    }
    for (int64_t i = 0; typed_.counted && i < run_.workspace_size; ++i) {
      all.values[i] = typed_.finished(all.values[i], all.counts[i]);
    }
    std::vector<Level> levels;
    for (const int64_t extent : run_.extents) levels.push_back({.format = LevelFormat::kDense, .size = extent});
    return finished(std::move(levels), all.values.take_values(run_.dtype));
  }

  nest::Assembler<T> assembler(int64_t first, int64_t past) const {
    return nest::Assembler<T>(run_.kernel->formats, run_.extents, typed_.fill, first, past);
  }
  nest::Workspace<T> workspace() const {
    const int64_t largest = std::min(options_.largest_array, std::max<int64_t>(65536, 16 * run_.entries));
    const bool is_array = run_.workspace_size <= largest;
    return nest::Workspace<T>(run_.workspace_size, typed_.identity, is_array, typed_.counted);
  }
  Tensor assembled(nest::Assembler<T>& levels) const {
    Values values = levels.take_values(run_.dtype);
    return finished(levels.take_levels(), std::move(values));
  }

  /// The outermost loop is the result's first level: ranges give pieces that follow each other.
  Tensor by_pieces() {
    std::vector<nest::Assembler<T>> pieces;
    for (int64_t range = 0; range < ranges(); ++range) pieces.push_back(assembler(cuts_[range], cuts_[range + 1]));
    if (pieces.empty()) pieces.push_back(assembler(0, 0));
    for (nest::Assembler<T>& piece : pieces) piece.reserve(options_.entries / std::ssize(pieces));
    std::vector<std::unique_ptr<nest::Workspace<T>>> workspaces(workers_.size());
    nest::run_tasks(options_.threads, ranges(), [&](int thread, int64_t range) {
      if (run_.way == ResultWay::kWorkspace && !workspaces[thread]) {
        workspaces[thread] = std::make_unique<nest::Workspace<T>>(workspace());
      }
      const Outcome<T> outcome{.levels = &pieces[range], .workspace = workspaces[thread].get()};
      worker(thread).run_range(outcome, cuts_[range], cuts_[range + 1]);
    });
    for (nest::Assembler<T>& piece : pieces) piece.finish();
    nest::Assembler<T> all = nest::Assembler<T>::joined(pieces, options_.threads);
    return assembled(all);
  }

  /// Each range reduces into a workspace over the whole result; they are reduced in order.
  Tensor by_one_workspace() {
    std::vector<std::unique_ptr<nest::Workspace<T>>> parts(std::max<int64_t>(1, ranges()));
    parts[0] = std::make_unique<nest::Workspace<T>>(workspace());
    nest::run_tasks(options_.threads, ranges(), [&](int thread, int64_t range) {
      if (range > 0) parts[range] = std::make_unique<nest::Workspace<T>>(workspace());
      worker(thread).run_range({.workspace = parts[range].get()}, cuts_[range], cuts_[range + 1]);
    });
    for (int64_t range = 1; range < ranges(); ++range) {
      parts[range]->drain(
          [&](int64_t position, T value, int64_t count) { parts[0]->add(reduce_, position, value, count); });
      parts[range].reset();
    }
    nest::Assembler<T> levels = assembler(0, run_.extents[0]);
    worker(0).flush({.levels = &levels, .workspace = parts[0].get()}, nullptr);
    levels.finish();
    return assembled(levels);
  }

  const Typed<T>& typed_;
  const Prepared& run_;
  const InterpreterOptions& options_;
  MakeWorker make_worker_;
  nest::ReduceBy reduce_;
  std::vector<int64_t> cuts_;
  std::vector<std::unique_ptr<RangeWorker<T>>> workers_;
};

}  // namespace joinsum::sparse::kernels

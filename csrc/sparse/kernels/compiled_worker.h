#pragma once

#include <algorithm>
#include <vector>

#include "sparse/kernels/generate.h"
#include "sparse/kernels/range_worker.h"

namespace joinsum::sparse::kernels {

/// Runs ranges of the outermost loop by a generated function.
template <class T>
class CompiledWorker final : public RangeWorker<T> {
 public:
  CompiledWorker(const Typed<T>& typed, GeneratedFunction function)
      : RangeWorker<T>(typed), function_(function), prefix_(run_.extents.size() + 1) {
    const KernelArguments& arguments = *run_.arguments;
    for (int64_t o = 0; o < std::ssize(arguments.operands); ++o) {
      const Tensor& tensor = *arguments.operands[o];
      std::vector<GeneratedLevel>& levels = levels_.emplace_back();
      for (size_t l = 0; l < tensor.levels.size(); ++l) {
        const std::vector<int64_t>& lookups = run_.kernel->loops[run_.kernel->operands[o].loops[l]].lookups;
        levels.push_back(generated_level({tensor.levels[l], std::ranges::find(lookups, o) != lookups.end()}));
      }
      values_.push_back(tensor.values.bytes.data());
      roots_.push_back(tensor.levels.empty() && !tensor.scalar_stored ? -1 : 0);
    }
    for (const std::vector<GeneratedLevel>& levels : levels_) level_pointers_.push_back(levels.data());
    for (const nest::LoopPlan& loop : run_.nest.loops) strides_.push_back(loop.stride);
    call_ = {.levels = level_pointers_.data(),
             .values = values_.data(),
             .roots = roots_.data(),
             .extents = arguments.extents.data(),
             .strides = strides_.data(),
             .context = this,
             .prefix = prefix_.data(),
             .element = element,
             .fiber = fiber};
  }

  void run_range(const Outcome<T>& outcome, int64_t lower, int64_t upper) override {
    outcome_ = outcome;
    call_.lower = lower;
    call_.upper = upper;
    set_elements();
    function_(&call_);
  }

 private:
  static GeneratedLevel generated_level(const nest::LevelView& view) {
    return {.size = view.size,
            .offsets = view.offsets,
            .coordinates = view.coordinates,
            .stored = view.stored,
            .slots = view.slots,
            .parents = view.parents,
            .mask = view.mask,
            .single = view.single};
  }

  void set_elements() {
    if (run_.way == ResultWay::kDense) {
      call_.elements = outcome_.dense->values.data();
      call_.counts = outcome_.dense->counts.data();
    } else if (run_.way == ResultWay::kInOrder) {
      chunk_values_.extend(kGeneratedChunk);
      chunk_counts_.extend(kGeneratedChunk);
      chunk_coordinates_.extend(kGeneratedChunk);
      call_.elements = chunk_values_.data();
      call_.counts = chunk_counts_.data();
      call_.order = chunk_coordinates_.data();
    } else if (outcome_.workspace->is_array()) {
      const auto parts = outcome_.workspace->parts();
      call_.elements = parts.values;
      call_.counts = parts.counts;
      call_.touched = parts.touched;
      call_.order = parts.order;
    }
  }

  static void* element(void* context, int64_t position, int64_t visits) {
    return &static_cast<CompiledWorker*>(context)->outcome_.workspace->element_at(position, visits);
  }

  static void fiber(void* context, int64_t count) { static_cast<CompiledWorker*>(context)->end_fiber(count); }

  void end_fiber(int64_t count) {
    if (run_.way == ResultWay::kInOrder) {
      for (int64_t i = 0; i < count; ++i) chunk_values_[i] = typed_.finished(chunk_values_[i], chunk_counts_[i]);
      outcome_.levels->set_prefix(prefix_.data(), run_.rank() - 1);
      outcome_.levels->append_fiber(chunk_coordinates_.data(), chunk_values_.data(), count);
      return;
    }
    if (outcome_.workspace->is_array()) outcome_.workspace->set_touched(count);
    if (run_.prefix > 0) this->flush(outcome_, prefix_.data());
  }

  using RangeWorker<T>::run_;
  using RangeWorker<T>::typed_;

  GeneratedFunction function_;
  GeneratedCall call_;
  Outcome<T> outcome_;
  std::vector<std::vector<GeneratedLevel>> levels_;
  std::vector<const GeneratedLevel*> level_pointers_;
  std::vector<const void*> values_;
  std::vector<int64_t> roots_;
  std::vector<int64_t> strides_;
  std::vector<int64_t> prefix_;
  nest::Buffer<T> chunk_values_;
  nest::Buffer<int64_t> chunk_counts_;
  nest::Buffer<int64_t> chunk_coordinates_;
};

}  // namespace joinsum::sparse::kernels

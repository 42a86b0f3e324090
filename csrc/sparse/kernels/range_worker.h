#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "sparse/kernels/nest/assembler.h"
#include "sparse/kernels/nest/workspace.h"
#include "sparse/kernels/prepared.h"

namespace joinsum::sparse::kernels {

/// A prepared kernel in the arithmetic of one dtype.
template <class T>
struct Typed {
  const Prepared& run;
  T body_fill{};
  T identity{};          ///< of the aggregate
  T fill{};              ///< of the result
  bool counted = false;  ///< whether visits that are left out change an element

  explicit Typed(const Prepared& prepared) : run(prepared), body_fill(nest::value_of<T>(prepared.kernel->body_fill)) {
    const std::optional<Operator>& op = run.kernel->aggregate;
    identity = op ? nest::identity_in<T>(*op) : body_fill;
    counted = op && body_fill != identity;
    fill = op ? finished(identity, 0) : body_fill;
  }

  /// An element that `count` visits were reduced into: the others are at the body's fill.
  T finished(T value, int64_t count) const {
    if (!counted) return value;
    const std::optional<Operator>& op = run.kernel->aggregate;
    const double missing = run.aggregated - static_cast<double>(count);
    if (missing <= 0) return value;
    return nest::applied(*op, value, nest::repeated_in(*op, body_fill, missing));
  }
};

/// Elements reduced where they stay, in the order of the result's levels.
template <class T>
struct DenseElements {
  nest::Buffer<T> values;
  nest::Buffer<int64_t> counts;  ///< of visits, where counted

  DenseElements() = default;
  /// Without values.
  DenseElements(int64_t size, const Typed<T>& typed) {
    values.extend(size);
    if (typed.counted) counts.extend(size);
  }

  /// Begins the elements in [begin, end).
  void begin(int64_t begin, int64_t end, const Typed<T>& typed) {
    std::fill(values.data() + begin, values.data() + end, typed.identity);
    if (typed.counted) std::fill(counts.data() + begin, counts.data() + end, 0);
  }
};

/// What a range of the outermost loop is written to; one of them is there, as `Prepared::way` says.
template <class T>
struct Outcome {
  DenseElements<T>* dense = nullptr;
  nest::Assembler<T>* levels = nullptr;
  nest::Workspace<T>* workspace = nullptr;
};

/// Runs ranges of the outermost loop of a kernel.
template <class T>
class RangeWorker {
 public:
  explicit RangeWorker(const Typed<T>& typed) : typed_(typed), run_(typed.run), fiber_(typed.run.extents.size()) {}
  virtual ~RangeWorker() = default;

  virtual void run_range(const Outcome<T>& outcome, int64_t lower, int64_t upper) = 0;

  /// Appends the elements of the workspace to the levels, below the coordinates of the prefix.
  void flush(const Outcome<T>& outcome, const int64_t* prefix) {
    std::copy_n(prefix, run_.prefix, fiber_.begin());
    if (run_.prefix + 1 < run_.rank()) return flush_fibers(outcome);
    outcome.levels->set_prefix(fiber_.data(), run_.prefix);
    const auto fiber = outcome.levels->extend_fiber(outcome.workspace->touched());
    int64_t at = 0;
    outcome.workspace->drain([&](int64_t position, T value, int64_t count) {
      fiber.coordinates[at] = position;
      fiber.values[at++] = typed_.finished(value, count);
    });
    outcome.levels->close_fiber(fiber);
  }

 protected:
  const Typed<T>& typed_;
  const Prepared& run_;

 private:
  /// `flush` where the workspace has several levels: its positions are split into their coordinates.
  void flush_fibers(const Outcome<T>& outcome) {
    const int64_t last = run_.rank() - 1;
    int64_t above = -1;
    outcome.workspace->drain([&](int64_t position, T value, int64_t count) {
      const int64_t fiber = position / run_.extents[last];
      if (fiber != above) {
        append_last(outcome);
        set_fiber(outcome, fiber);
        above = fiber;
      }
      last_coordinates_.push_back(position - fiber * run_.extents[last]);
      last_values_.push_back(typed_.finished(value, count));
    });
    append_last(outcome);
  }

  void set_fiber(const Outcome<T>& outcome, int64_t fiber) {
    for (int64_t level = run_.rank() - 2; level >= run_.prefix; --level) {
      fiber_[level] = fiber % run_.extents[level];
      fiber /= run_.extents[level];
    }
    outcome.levels->set_prefix(fiber_.data(), run_.rank() - 1);
  }

  void append_last(const Outcome<T>& outcome) {
    outcome.levels->append_fiber(last_coordinates_.data(), last_values_.data(), last_coordinates_.size());
    last_coordinates_.clear();
    last_values_.clear();
  }

  std::vector<int64_t> fiber_;              ///< coordinates of the levels above the last one, as a flush goes on
  nest::Buffer<int64_t> last_coordinates_;  ///< elements of that fiber
  nest::Buffer<T> last_values_;
};

}  // namespace joinsum::sparse::kernels

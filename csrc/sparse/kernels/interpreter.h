#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "sparse/kernels/body.h"
#include "sparse/kernels/execution.h"
#include "sparse/kernels/nest/candidates.h"
#include "sparse/kernels/nest/merged_loops.h"
#include "sparse/kernels/nest/nest.h"
#include "sparse/kernels/product_body.h"
#include "sparse/kernels/range_worker.h"

namespace joinsum::sparse::kernels {

/// Interprets ranges of the outermost loop, reducing by R.
template <class T, class R>
class Interpreter final : public RangeWorker<T>, private nest::Nest {
 public:
  explicit Interpreter(const Typed<T>& typed)
      : RangeWorker<T>(typed),
        Nest(typed.run.nest),
        stride_(run_.nest.loops.back().stride),
        candidates_(run_.nest.loops.back()),
        merged_(merged_loops_of(run_.nest)),
        body_(run_, merged_ ? merged_->participants() : innermost_operands(run_.nest)),
        product_(run_),
        column_(nest::kBlock),
        output_coordinates_(run_.extents.size()) {}

  void run_range(const Outcome<T>& outcome, int64_t lower, int64_t upper) override {
    outcome_ = outcome;
    run(lower, upper);
  }

 private:
  void begin_element() override {
    reduced_ = typed_.identity;
    count_ = 0;
  }

  void end_element() override {
    if (run_.way == ResultWay::kWorkspace) return this->flush(outcome_, output_coordinates(run_.prefix));
    if (count_ == 0) return;
    outcome_.levels->set_prefix(output_coordinates(run_.rank()), run_.rank());
    outcome_.levels->append(typed_.finished(reduced_, count_));
  }

  /// The coordinates of the result's leading levels.
  const int64_t* output_coordinates(int64_t levels) {
    for (int64_t level = 0; level < levels; ++level) {
      output_coordinates_[level] = coordinates()[run_.kernel->output[level]];
    }
    return output_coordinates_.data();
  }

  static std::optional<nest::MergedLoops> merged_loops_of(const nest::NestPlan& plan) {
    const bool is_merged = plan.innermost + 1 < std::ssize(plan.loops);
    return is_merged ? std::optional<nest::MergedLoops>(plan) : std::nullopt;
  }

  static std::vector<int64_t> innermost_operands(const nest::NestPlan& plan) {
    std::vector<int64_t> operands;
    for (const nest::Participant& each : plan.loops.back().participants) operands.push_back(each.operand);
    return operands;
  }

  void innermost(int64_t lower, int64_t upper) override {
    if (merged_) return run_merged(lower, upper);
    if (product_.shape() != nest::ProductShape::kNone && multiply(product_.terms(positions(), lower, upper))) return;
    candidates_.start(positions().data(), lower, upper);
    body_.start(positions());
    if (!run_.innermost_is_output) {
      T reduced = typed_.identity;
      int64_t count = 0;
      while (candidates_.next()) {
        reduced = reduce(evaluate(), candidates_.count(), reduced);
        count += candidates_.count();
      }
      if (count > 0) add(base(), reduced, count);
      return;
    }
    while (candidates_.next()) scatter(evaluate(), candidates_.count(), candidates_.coordinates());
  }

  nest::Column<T> evaluate() { return body_.evaluate(candidates_.entries(), candidates_.count()); }

  /// The loops that are merged. What a list of the last one reduces is reduced alone, as by a loop of its own.
  void run_merged(int64_t lower, int64_t upper) {
    merged_->start(positions().data(), lower, upper);
    body_.start(positions());
    if (run_.appends) {
      while (merged_->next()) {
        scatter(body_.evaluate(merged_->entries(), merged_->count()), merged_->count(), merged_->places());
      }
      return;
    }
    T reduced = typed_.identity;  // of a list that may go on in the next block
    int64_t count = 0, place = 0;
    const auto add_last = [&] {
      if (count > 0) add(base() + place, reduced, count);
      reduced = typed_.identity;
      count = 0;
    };
    while (merged_->next()) {
      const nest::Column<T> values = body_.evaluate(merged_->entries(), merged_->count());
      if (run_.innermost_is_output || merged_->alone()) {
        add_last();
        add_each(values, merged_->places(), merged_->count());
        continue;
      }
      int64_t begin = 0;
      for (int64_t list = 0; list < merged_->lists(); ++list) {
        if (list > 0 || !merged_->continues()) add_last();
        const int64_t end = merged_->list_end(list);
        for (int64_t i = begin; i < end; ++i) {
          reduced = R::reduced(reduced, values.is_scalar() ? values.value : values.data[i]);
        }
        count += end - begin;
        place = merged_->places()[list];
        begin = end;
      }
    }
    add_last();
  }

  /// Adds visits each of which is reduced alone.
  void add_each(const nest::Column<T>& values, const int64_t* places, int64_t count) {
    const T* column = values.data;
    if (values.is_scalar()) {
      std::fill_n(column_.data(), count, values.value);
      column = column_.data();
    }
    if (run_.way == ResultWay::kDense && !typed_.counted) {
      T* out = outcome_.dense->values.data() + base();
      for (int64_t i = 0; i < count; ++i) {
        T& element = out[places[i]];
        element = R::reduced(element, R::reduced(typed_.identity, column[i]));
      }
      return;
    }
    for (int64_t i = 0; i < count; ++i) add(base() + places[i], R::reduced(typed_.identity, column[i]), 1);
  }

  /// Runs the loop if it is one of those compiled for products.
  bool multiply(const nest::ProductTerms<T>& terms) {
    if (terms.shape == nest::ProductShape::kNone) return false;
    if (terms.count == 0) return true;
    if (!run_.innermost_is_output) {
      add(base(), nest::reduced_terms<R>(terms, typed_.identity), terms.count);
      return true;
    }
    if (typed_.counted) return false;
    if (run_.way == ResultWay::kDense) {
      nest::scatter_terms<R>(terms, outcome_.dense->values.data() + base(), stride_);
      return true;
    }
    if (run_.way != ResultWay::kWorkspace || !outcome_.workspace->is_array()) return false;
    nest::scatter_terms<R>(terms, *outcome_.workspace, base(), stride_);
    return true;
  }

  T reduce(const nest::Column<T>& values, int64_t count, T reduced) {
    for (int64_t i = 0; i < count; ++i)
      reduced = R::reduced(reduced, values.is_scalar() ? values.value : values.data[i]);
    return reduced;
  }

  /// Adds what `count` visits were reduced to.
  void add(int64_t position, T value, int64_t count) {
    if (run_.way == ResultWay::kInOrder) {
      reduced_ = R::reduced(reduced_, value);
      count_ += count;
    } else if (run_.way == ResultWay::kWorkspace) {
      outcome_.workspace->add(R{}, position, value, count);
    } else {
      T& element = outcome_.dense->values[position];
      element = R::reduced(element, value);
      if (typed_.counted) outcome_.dense->counts[position] += count;
    }
  }

  void scatter(const nest::Column<T>& values, int64_t count, const int64_t* coordinates_of) {
    const T* column = values.data;
    if (values.is_scalar()) {
      std::fill_n(column_.data(), count, values.value);
      column = column_.data();
    }
    if (run_.way == ResultWay::kInOrder) {
      if (run_.kernel->aggregate) column = reduced_alone(column, count);
      outcome_.levels->set_prefix(output_coordinates(run_.rank() - 1), run_.rank() - 1);
      outcome_.levels->append_fiber(coordinates_of, column, count);
      return;
    }
    for (int64_t i = 0; i < count; ++i) add(base() + stride_ * coordinates_of[i], column[i], 1);
  }

  /// Elements of one visit: an aggregate makes truth values of what `and` and `or` reduce.
  const T* reduced_alone(const T* column, int64_t count) {
    for (int64_t i = 0; i < count; ++i) column_[i] = typed_.finished(R::reduced(typed_.identity, column[i]), 1);
    return column_.data();
  }

  using RangeWorker<T>::run_;
  using RangeWorker<T>::typed_;

  int64_t stride_;
  nest::Candidates candidates_;
  std::optional<nest::MergedLoops> merged_;
  Body<T> body_;
  ProductBody<T> product_;
  nest::Buffer<T> column_;
  std::vector<int64_t> output_coordinates_;
  Outcome<T> outcome_;
  T reduced_{};
  int64_t count_ = 0;
};

/// `interpret` in the arithmetic of T.
template <class T>
Tensor interpret_as(const Prepared& run, const InterpreterOptions& options) {
  const Typed<T> typed(run);
  return nest::with_reduction(run.kernel->aggregate, [&](auto reduction) {
    const auto make = [&]() -> std::unique_ptr<RangeWorker<T>> {
      return std::make_unique<Interpreter<T, decltype(reduction)>>(typed);
    };
    return Execution<T>(typed, options, make).result();
  });
}

extern template Tensor interpret_as<float>(const Prepared&, const InterpreterOptions&);
extern template Tensor interpret_as<double>(const Prepared&, const InterpreterOptions&);
extern template Tensor interpret_as<int32_t>(const Prepared&, const InterpreterOptions&);
extern template Tensor interpret_as<int64_t>(const Prepared&, const InterpreterOptions&);
extern template Tensor interpret_as<uint8_t>(const Prepared&, const InterpreterOptions&);
extern template Tensor interpret_as<bool>(const Prepared&, const InterpreterOptions&);

}  // namespace joinsum::sparse::kernels

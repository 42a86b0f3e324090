// The cross entropy of scores of classes, of which each site has a shard, and its gradient: a pass over the scores
// each. Scores are [n, c, *s], targets [n, *s]. Logarithms of sums of exponentials, `lse`, are of double precision, as
// losses are small differences from them; the gradient reads these and the scores alone.

#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <torch/library.h>

#include "kernels/threads/parallel.h"
#include "kernels/torch_call/axis_shard.h"
#include "kernels/torch_call/lookups.h"
#include "kernels/torch_call/processor_rows.h"

namespace joinsum::kernels::torch_call {
namespace {

constexpr int64_t kChunk = 8'192;  ///< elements whose exponentials are summed in their own precision

/// Whether the scores of a sample are adjacent numbers of a type that the loops take.
bool has_rows(const at::Tensor& input) {
  return input.dim() == 2 && (input.scalar_type() == at::kFloat || input.scalar_type() == at::kDouble);
}

at::ScalarType accumulated(const at::Tensor& input) {
  return input.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

// --- by torch's operators --------------------------------------------------------------------------------------------

/// log Σ exp(score) over the classes; the results of shards are reduced by logaddexp.
at::Tensor composed_lse(const at::Tensor& input) { return input.to(at::kDouble).logsumexp(1); }

at::Tensor composed_losses(const at::Tensor& lse, const at::Tensor& score, const at::Tensor& share) {
  return ((lse - score) * share).masked_fill_(share.eq(0), 0).to(score.scalar_type());
}

/// slope (exp(input - lse) - [the class is `own`]), where `less` is the slope of targets in the shard, and zero of
/// others.
at::Tensor gradient_of_classes(const at::Tensor& input, const at::Tensor& lse, const at::Tensor& slope,
                               const at::Tensor& own, const at::Tensor& less) {
  const at::Tensor high = lse.to(slope.scalar_type());
  const at::Tensor low = (lse - high).to(slope.scalar_type());
  at::Tensor out = at::sub(input.to(slope.scalar_type()), high.unsqueeze(1)).sub_(low.unsqueeze(1)).exp_();
  out.mul_(slope.unsqueeze(1)).scatter_add_(1, own.unsqueeze(1), less.neg().unsqueeze(1));
  return out.to(input.scalar_type());
}

at::Tensor composed_grad_of(const at::Tensor& input, const at::Tensor& target, const at::Tensor& lse,
                            const at::Tensor& slope, const AxisShard& shard) {
  const auto [own, present] = local_targets(target.masked_fill(slope.eq(0), -1), -1, shard);
  const at::Tensor wide = slope.to(accumulated(input));
  return gradient_of_classes(input, lse, wide, own, wide.masked_fill(present.logical_not(), 0));
}

at::Tensor composed_grad(const at::Tensor& input, const at::Tensor& target, const at::Tensor& lse,
                         const at::Tensor& slope, at::IntArrayRef offsets, at::IntArrayRef local,
                         at::IntArrayRef extents) {
  return composed_grad_of(input, target, lse, slope, AxisShard(offsets, local, extents));
}

// --- by loops over rows ----------------------------------------------------------------------------------------------

template <class T>
double log_of_sum(const T* x, int64_t count) {
  const rows::RowLoops<T>& loops = row_loops<T>();
  const T most = loops.maximum(x, count);
  double total = 0;
  for (int64_t at = 0; at < count; at += kChunk) {
    // Of minus infinities alone the sum is zero, but of those that are not a number.
    const T from = std::isinf(most) && most < 0 ? T(0) : most;
    total += static_cast<double>(loops.sum_of_exponentials(x + at, std::min(kChunk, count - at), from));
  }
  return total == 0 ? static_cast<double>(most) : static_cast<double>(most) + std::log(total);
}

at::Tensor& class_lse_out(const at::Tensor& input, at::Tensor& out) {
  if (input.numel() == 0) return out.fill_(-HUGE_VAL);
  if (!has_rows(input)) return out.copy_(input.to(at::kDouble).logsumexp(1));
  const at::Tensor scores = input.contiguous();
  const int64_t classes = input.size(1);
  AT_DISPATCH_FLOATING_TYPES(input.scalar_type(), "class_lse", [&] {
    const scalar_t* from = scores.const_data_ptr<scalar_t>();
    double* to = out.mutable_data_ptr<double>();
    threads::for_each_range(input.size(0), rows_per_thread(classes), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) to[row] = log_of_sum(from + row * classes, classes);
    });
  });
  return out;
}

at::Tensor& cross_entropy_of_out(const at::Tensor& lse, const at::Tensor& score, const at::Tensor& share,
                                 at::Tensor& out) {
  const at::Tensor sums = lse.to(at::kDouble).contiguous();
  const at::Tensor scores = score.to(out.scalar_type()).contiguous();
  const at::Tensor shares = share.to(out.scalar_type()).contiguous();
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, out.scalar_type(), "cross_entropy_of", [&] {
    const double* of_row = sums.const_data_ptr<double>();
    const scalar_t* own = scores.const_data_ptr<scalar_t>();
    const scalar_t* weights = shares.const_data_ptr<scalar_t>();
    scalar_t* to = out.mutable_data_ptr<scalar_t>();
    for (int64_t i = 0; i < out.numel(); ++i) {
      const auto weight = static_cast<double>(weights[i]);
      to[i] = static_cast<scalar_t>(weight == 0 ? 0 : (of_row[i] - static_cast<double>(own[i])) * weight);
    }
  });
  return out;
}

/// Targets and slopes of the losses of a shard of the classes.
struct Slopes {
  const AxisShard& shard;
  const at::Tensor target;
  const at::Tensor lse;
  const at::Tensor slope;

  /// The class in the shard of target `i`; -1 where another shard has it, or its loss does not count.
  template <class T>
  int64_t find(int64_t i) const {
    if (slope.const_data_ptr<T>()[i] == T(0)) return -1;
    return shard.find(target.const_data_ptr<int64_t>()[i]);
  }
};

template <class T>
void gradient_of_row(const Slopes& slopes, int64_t row, const T* from, int64_t classes, T* to) {
  const double lse = slopes.lse.const_data_ptr<double>()[row];
  const T high = static_cast<T>(lse);
  const T low = static_cast<T>(lse - static_cast<double>(high));
  const T slope = slopes.slope.const_data_ptr<T>()[row];
  row_loops<T>().scaled_exponentials(from, classes, high, low, slope, to);
  const int64_t own = slopes.find<T>(row);
  if (own >= 0) to[own] -= slope;
}

/// The same for any layout and type.
void gradient_by_torch(const Slopes& slopes, const at::Tensor& input, at::Tensor& out) {
  at::Tensor own = at::zeros(slopes.target.sizes(), slopes.target.options());
  at::Tensor less = at::zeros(slopes.target.sizes(), slopes.slope.options());
  AT_DISPATCH_FLOATING_TYPES(less.scalar_type(), "cross_entropy_grad", [&] {
    for (int64_t i = 0; i < slopes.target.numel(); ++i) {
      const int64_t found = slopes.find<scalar_t>(i);
      if (found < 0) continue;
      own.mutable_data_ptr<int64_t>()[i] = found;
      less.mutable_data_ptr<scalar_t>()[i] = slopes.slope.const_data_ptr<scalar_t>()[i];
    }
  });
  out.copy_(gradient_of_classes(input, slopes.lse, slopes.slope, own, less));
}

at::Tensor& gradient_into(const at::Tensor& input, const at::Tensor& target, const at::Tensor& lse,
                          const at::Tensor& slope, const AxisShard& shard, at::Tensor& out) {
  if (input.numel() == 0) return out;
  const Slopes slopes{shard, target.to(at::kLong).contiguous(), lse.to(at::kDouble).contiguous(),
                      slope.to(accumulated(input)).contiguous()};
  if (!has_rows(input)) {
    gradient_by_torch(slopes, input, out);
    return out;
  }
  const at::Tensor scores = input.contiguous();
  const int64_t classes = input.size(1);
  AT_DISPATCH_FLOATING_TYPES(input.scalar_type(), "cross_entropy_grad", [&] {
    const scalar_t* from = scores.const_data_ptr<scalar_t>();
    scalar_t* to = out.mutable_data_ptr<scalar_t>();
    threads::for_each_range(input.size(0), rows_per_thread(classes), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row)
        gradient_of_row(slopes, row, from + row * classes, classes, to + row * classes);
    });
  });
  return out;
}

at::Tensor& cross_entropy_grad_out(const at::Tensor& input, const at::Tensor& target, const at::Tensor& lse,
                                   const at::Tensor& slope, at::IntArrayRef offsets, at::IntArrayRef local,
                                   at::IntArrayRef extents, at::Tensor& out) {
  return gradient_into(input, target, lse, slope, AxisShard(offsets, local, extents), out);
}

// --- new results -----------------------------------------------------------------------------------------------------

/// log Σ exp(score) over the classes. Of single precision the exponentials are, too: `joinsum::class_lse` itself is as
/// exact as its result.
at::Tensor lse_of(const at::Tensor& input) {
  if (!input.is_cpu()) return composed_lse(input);
  std::vector<int64_t> extents = input.sizes().vec();
  extents.erase(extents.begin() + 1);
  at::Tensor out = at::empty(extents, input.options().dtype(at::kDouble));
  return class_lse_out(input, out);
}

/// The loss of each target, whose weight is `share`: (lse - score) share, zero of those without weight.
at::Tensor cross_entropy_of(const at::Tensor& lse, const at::Tensor& score, const at::Tensor& share) {
  if (!score.is_cpu()) return composed_losses(lse, score, share);
  at::Tensor out = at::empty(score.sizes(), score.options());
  return cross_entropy_of_out(lse, score, share, out);
}

/// The gradient of a shard of the scores: slope (exp(score - lse) - [the class is the target's]). `slope` is the
/// gradient of each target's loss times its weight; a target whose slope is zero may be no class.
at::Tensor cross_entropy_grad(const at::Tensor& input, const at::Tensor& target, const at::Tensor& lse,
                              const at::Tensor& slope, at::IntArrayRef offsets, at::IntArrayRef local,
                              at::IntArrayRef extents) {
  at::Tensor out = at::empty(input.sizes(), input.options());
  return cross_entropy_grad_out(input, target, lse, slope, offsets, local, extents, out);
}

// --- all classes in one place ----------------------------------------------------------------------------------------

constexpr int64_t kMean = 1;

/// The loss, the sum of the weights, the weight of each target, and `lse`. `reduction` is 0 for the losses of all
/// targets, 1 for their mean over the weights, 2 for their sum.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> cross_entropy(const at::Tensor& input,
                                                                         const at::Tensor& target,
                                                                         const std::optional<at::Tensor>& weight,
                                                                         int64_t reduction, int64_t ignored) {
  const at::Tensor lse = lse_of(input);
  const auto [score, share] = class_scores(input, target, weight, ignored, AxisShard(input.size(1)));
  const at::Tensor losses = cross_entropy_of(lse, score, share);
  if (reduction == 0) return {losses, at::zeros({}, losses.options()), share, lse};
  const at::Tensor total = share.sum();
  const at::Tensor sum = losses.sum();
  return {reduction == kMean ? sum / total : sum, total, share, lse};
}

/// The gradient of each target's loss times its weight.
at::Tensor slope_of(const at::Tensor& grad, int64_t reduction, const at::Tensor& total, const at::Tensor& share) {
  return (reduction == kMean ? grad / total : grad) * share;
}

/// The gradient of the scores, of that of the loss and of what `cross_entropy` gave.
at::Tensor composed_backward(const at::Tensor& grad, const at::Tensor& input, const at::Tensor& target,
                             int64_t reduction, const at::Tensor& total, const at::Tensor& share,
                             const at::Tensor& lse) {
  return composed_grad_of(input, target, lse, slope_of(grad, reduction, total, share), AxisShard(input.size(1)));
}

at::Tensor& cross_entropy_backward_out(const at::Tensor& grad, const at::Tensor& input, const at::Tensor& target,
                                       int64_t reduction, const at::Tensor& total, const at::Tensor& share,
                                       const at::Tensor& lse, at::Tensor& out) {
  return gradient_into(input, target, lse, slope_of(grad, reduction, total, share), AxisShard(input.size(1)), out);
}

at::Tensor cross_entropy_backward(const at::Tensor& grad, const at::Tensor& input, const at::Tensor& target,
                                  int64_t reduction, const at::Tensor& total, const at::Tensor& share,
                                  const at::Tensor& lse) {
  at::Tensor out = at::empty(input.sizes(), input.options());
  return cross_entropy_backward_out(grad, input, target, reduction, total, share, lse, out);
}

TORCH_LIBRARY_FRAGMENT(joinsum, library) {
  library.def("class_lse(Tensor input) -> Tensor");
  library.def("cross_entropy_of(Tensor lse, Tensor score, Tensor share) -> Tensor");
  library.def(
      "cross_entropy_grad(Tensor input, Tensor target, Tensor lse, Tensor slope, SymInt[] offsets, SymInt[] local, "
      "SymInt[] extents) -> Tensor");
  library.def(
      "cross_entropy(Tensor input, Tensor target, Tensor? weight, int reduction, SymInt ignored) -> (Tensor, Tensor, "
      "Tensor, Tensor)");
  library.def(
      "cross_entropy_backward(Tensor grad, Tensor input, Tensor target, int reduction, Tensor total, Tensor share, "
      "Tensor lse) -> Tensor");
  library.def(
      "cross_entropy_backward.out(Tensor grad, Tensor input, Tensor target, int reduction, Tensor total, Tensor share, "
      "Tensor lse, *, Tensor(a!) input_out) -> Tensor(a!)");
  library.def("class_lse.out(Tensor input, *, Tensor(a!) result_out) -> Tensor(a!)");
  library.def("cross_entropy_of.out(Tensor lse, Tensor score, Tensor share, *, Tensor(a!) score_out) -> Tensor(a!)");
  library.def(
      "cross_entropy_grad.out(Tensor input, Tensor target, Tensor lse, Tensor slope, SymInt[] offsets, SymInt[] local, "
      "SymInt[] extents, *, Tensor(a!) input_out) -> Tensor(a!)");
}

TORCH_LIBRARY_IMPL(joinsum, CompositeExplicitAutograd, library) {
  library.impl("class_lse", &composed_lse);
  library.impl("cross_entropy_of", &composed_losses);
  library.impl("cross_entropy_grad", &composed_grad);
  library.impl("cross_entropy", &cross_entropy);
  library.impl("cross_entropy_backward", &composed_backward);
}

TORCH_LIBRARY_IMPL(joinsum, CPU, library) {
  library.impl("cross_entropy_of", &cross_entropy_of);
  library.impl("cross_entropy_grad", &cross_entropy_grad);
  library.impl("cross_entropy_backward", &cross_entropy_backward);
  library.impl("cross_entropy_backward.out", &cross_entropy_backward_out);
  library.impl("class_lse.out", &class_lse_out);
  library.impl("cross_entropy_of.out", &cross_entropy_of_out);
  library.impl("cross_entropy_grad.out", &cross_entropy_grad_out);
}

}  // namespace
}  // namespace joinsum::kernels::torch_call

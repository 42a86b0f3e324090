// The cross entropy of scores of classes, of which each site has a shard, and its gradient: a pass over the scores
// each. Logarithms of sums of exponentials are of double precision, as losses are small differences from them. The
// functional forms are in python/joinsum/capture/decompositions.

#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <torch/library.h>

#include "kernels/pairs/parallel.h"
#include "kernels/torch_call/axis_shard.h"
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
    pairs::for_each_range(input.size(0), rows_per_thread(classes), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) to[row] = log_of_sum(from + row * classes, classes);
    });
  });
  return out;
}

at::Tensor& cross_entropy_of_out(const at::Tensor& lse, const at::Tensor& score, const at::Tensor& share,
                                 at::Tensor& out) {
  const at::Tensor sums = lse.contiguous();
  const at::Tensor scores = score.contiguous();
  const at::Tensor shares = share.contiguous();
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
  const auto type = accumulated(input);
  const at::Tensor high = slopes.lse.to(type);
  const at::Tensor low = (slopes.lse - high).to(type);
  const at::Tensor slope = slopes.slope.to(type);
  at::Tensor own = at::zeros(slopes.target.sizes(), slopes.target.options());
  at::Tensor less = at::zeros(slopes.target.sizes(), slope.options());
  const Slopes wide{slopes.shard, slopes.target, slopes.lse, slope};
  AT_DISPATCH_FLOATING_TYPES(type, "cross_entropy_grad", [&] {
    for (int64_t i = 0; i < slopes.target.numel(); ++i) {
      const int64_t found = wide.find<scalar_t>(i);
      if (found < 0) continue;
      own.mutable_data_ptr<int64_t>()[i] = found;
      less.mutable_data_ptr<scalar_t>()[i] = -slope.const_data_ptr<scalar_t>()[i];
    }
  });
  at::Tensor result = input.to(type).sub(high.unsqueeze(1)).sub_(low.unsqueeze(1)).exp_().mul_(slope.unsqueeze(1));
  out.copy_(result.scatter_add_(1, own.unsqueeze(1), less.unsqueeze(1)));
}

at::Tensor& cross_entropy_grad_out(const at::Tensor& input, const at::Tensor& target, const at::Tensor& lse,
                                   const at::Tensor& slope, at::IntArrayRef offsets, at::IntArrayRef local,
                                   at::IntArrayRef extents, at::Tensor& out) {
  if (input.numel() == 0) return out;
  const AxisShard shard(offsets, local, extents);
  const Slopes slopes{shard, target.to(at::kLong).contiguous(), lse.contiguous(), slope.contiguous()};
  if (!has_rows(input)) {
    gradient_by_torch(slopes, input, out);
    return out;
  }
  const at::Tensor scores = input.contiguous();
  const int64_t classes = input.size(1);
  AT_DISPATCH_FLOATING_TYPES(input.scalar_type(), "cross_entropy_grad", [&] {
    const scalar_t* from = scores.const_data_ptr<scalar_t>();
    scalar_t* to = out.mutable_data_ptr<scalar_t>();
    pairs::for_each_range(input.size(0), rows_per_thread(classes), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row)
        gradient_of_row(slopes, row, from + row * classes, classes, to + row * classes);
    });
  });
  return out;
}

TORCH_LIBRARY_FRAGMENT(joinsum, library) {
  library.def("class_lse.out(Tensor input, *, Tensor(a!) result_out) -> Tensor(a!)");
  library.def("cross_entropy_of.out(Tensor lse, Tensor score, Tensor share, *, Tensor(a!) score_out) -> Tensor(a!)");
  library.def(
      "cross_entropy_grad.out(Tensor input, Tensor target, Tensor lse, Tensor slope, SymInt[] offsets, SymInt[] local, "
      "SymInt[] extents, *, Tensor(a!) input_out) -> Tensor(a!)");
}

TORCH_LIBRARY_IMPL(joinsum, CPU, library) {
  library.impl("class_lse.out", &class_lse_out);
  library.impl("cross_entropy_of.out", &cross_entropy_of_out);
  library.impl("cross_entropy_grad.out", &cross_entropy_grad_out);
}

}  // namespace
}  // namespace joinsum::kernels::torch_call

// Batch norms of [n, c, *s] whose batch is divided, and their gradients, of the sums over all shards in training and of
// the running statistics in evaluation. Half types are summed in single precision.

#include <algorithm>
#include <tuple>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/Dispatch.h>
#include <torch/library.h>

#include "kernels/torch_call/row_pieces.h"

namespace joinsum::kernels::torch_call {
namespace {

using Optional = std::optional<at::Tensor>;
using Two = std::tuple<at::Tensor, at::Tensor>;
using Three = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
using Five = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

Optional cast(const Optional& tensor, at::ScalarType type) {
  return tensor && tensor->defined() ? Optional(tensor->to(type)) : Optional();
}

/// Numbers [c] in the shape in which they broadcast with an input [n, c, *s].
at::Tensor spread(const at::Tensor& numbers, const at::Tensor& input) {
  std::vector<int64_t> extents(static_cast<size_t>(input.dim()) - 1, 1);
  extents[0] = -1;
  return numbers.view(extents);
}

/// A batch norm in evaluation: with running statistics.
at::Tensor batch_norm_with(const at::Tensor& input, const Optional& weight, const Optional& bias,
                           const at::Tensor& running_mean, const at::Tensor& running_var, double eps) {
  return at::batch_norm(input, weight, bias, running_mean, running_var, false, 0.0, eps,
                        at::globalContext().userEnabledCuDNN());
}

// --- in training -----------------------------------------------------------------------------------------------------

/// A batch norm in training, the batch's mean, one over its deviation, and the new running statistics, which are the
/// batch's where there are none. `total` and `squares` have an axis for each of the input's; the statistics of the
/// batch are of the dtype `statistics`.
Five batch_norm_of(const at::Tensor& input, const at::Tensor& total, const at::Tensor& squares, const Optional& weight,
                   const Optional& bias, const Optional& running_mean, const Optional& running_var, int64_t count,
                   double momentum, double eps, at::ScalarType statistics) {
  const at::ScalarType type = total.scalar_type();
  const at::Tensor mean = total.div(count).flatten();
  const at::Tensor variance = squares.div(count).flatten();
  const at::Tensor unbiased = squares.flatten().div(std::max<int64_t>(count - 1, 1));
  const at::Tensor result = batch_norm_with(input.to(type), cast(weight, type), cast(bias, type), mean, variance, eps)
                                .to(input.scalar_type());
  const auto now = [&](const at::Tensor& running, const at::Tensor& own) {
    return (running + momentum * (own - running)).to(running.scalar_type());
  };
  const bool runs = running_mean && running_mean->defined() && running_var && running_var->defined();
  return {result, mean.to(statistics), variance.add(eps).rsqrt_().to(statistics),
          runs ? now(*running_mean, mean) : mean.to(statistics, /*non_blocking=*/false, /*copy=*/true),
          runs ? now(*running_var, unbiased) : unbiased.to(statistics)};
}

/// ATen's batch norm in training, which has running statistics or none: then nothing reads the new ones.
Five plain_batch_norm(const at::Tensor& input, const Optional& weight, const Optional& bias,
                      const Optional& running_mean, const Optional& running_var, double momentum, double eps) {
  if (running_mean && running_mean->defined() && running_var && running_var->defined()) {
    return at::_native_batch_norm_legit_functional(input, weight, bias, *running_mean, *running_var, true, momentum,
                                                   eps);
  }
  const auto [result, mean, rstd] = at::_native_batch_norm_legit(input, weight, bias, true, momentum, eps);
  return {result, mean, rstd, mean.clone(), rstd.clone()};
}

/// The results of `batch_norm_of` for a whole batch: by loops over the rows of each channel, which take a fraction of
/// the time of ATen's, where rows are long enough.
template <bool by_rows>
Five batch_norm_training(const at::Tensor& input, const Optional& weight, const Optional& bias,
                         const Optional& running_mean, const Optional& running_var, double momentum, double eps) {
  const int64_t channels = input.size(1);
  const at::Tensor total = at::empty({channels}, input.options());
  const at::Tensor squares = at::empty({channels}, input.options());
  const auto given = [](const Optional& operand) { return operand ? *operand : at::Tensor(); };
  const bool alike = single_type(input, {given(weight), given(bias), given(running_mean), given(running_var)});
  const auto all = by_rows && alike ? rows_of_channels(input, total) : std::nullopt;
  if (!all) return plain_batch_norm(input, weight, bias, running_mean, running_var, momentum, eps);
  const int64_t count = input.numel() / channels;
  const at::Tensor x = input.contiguous();
  AT_DISPATCH_FLOATING_TYPES(input.scalar_type(), "batch_norm_training", [&] {
    const scalar_t* from = data_of<scalar_t>(x);
    scalar_t* sums = total.mutable_data_ptr<scalar_t>();
    scalar_t* of_squares = squares.mutable_data_ptr<scalar_t>();
    const auto& loops = row_loops<scalar_t>();
    sum_rows<1>(
        *all, channels, [&](const Piece& p) { return Sums<1>{loops.sum(from + p.at, p.count)}; },
        [&](int64_t c, const Sums<1>& sum) { sums[c] = static_cast<scalar_t>(sum[0]); });
    sum_rows<1>(
        *all, channels,
        [&](const Piece& p) {
          const scalar_t mean = sums[p.row % channels] / static_cast<scalar_t>(count);
          return Sums<1>{loops.sum_of_squares(from + p.at, p.count, mean)};
        },
        [&](int64_t c, const Sums<1>& sum) { of_squares[c] = static_cast<scalar_t>(sum[0]); });
  });
  return batch_norm_of(x, total, squares, weight, bias, running_mean, running_var, count, momentum, eps,
                       input.scalar_type());
}

/// For each channel Σ grad and Σ grad · normed; the results of shards are summed.
Two batch_norm_slopes(const at::Tensor& grad, const at::Tensor& input, const at::Tensor& mean, const at::Tensor& rstd) {
  const at::ScalarType type = at::toOpMathType(mean.scalar_type());
  const at::Tensor own = mean.to(type);
  // torch's operator divides by the number of elements.
  if (input.numel() == 0) return {at::zeros_like(own), at::zeros_like(own)};
  // Without the gradient of the input, the operator sums over each shard as if it were the batch.
  auto [_, second, first] = at::native_batch_norm_backward(grad.to(type), input.to(type), at::ones_like(own), {}, {},
                                                           own, rstd.to(type), true, 0.0, {false, true, true});
  return {first, second};
}

/// The gradient of a batch norm's input in training: scale (grad - first / count - normed · second / count).
at::Tensor composed_grad(const at::Tensor& grad, const at::Tensor& input, const at::Tensor& mean,
                         const at::Tensor& rstd, const Optional& weight, const at::Tensor& first,
                         const at::Tensor& second, int64_t count) {
  const at::ScalarType type = first.scalar_type();
  const at::Tensor own = rstd.to(type);
  const at::Tensor scale = weight && weight->defined() ? own * weight->to(type) : own;
  const at::Tensor slope = (scale * own * second).div_(-count);
  const at::Tensor offset = (scale * first).div_(-count);
  // Centred first: where the mean is far larger than the deviation, the product would cancel otherwise.
  at::Tensor result = input.to(type) - spread(mean.to(type), input);
  at::addcmul_out(result, spread(offset, input), result, spread(slope, input));
  return result.addcmul_(grad.to(type), spread(scale, input)).to(input.scalar_type());
}

/// The same for rows of adjacent elements in one pass; undefined of others.
at::Tensor grad_of_rows(const at::Tensor& grad, const at::Tensor& input, const at::Tensor& mean, const at::Tensor& rstd,
                        const Optional& weight, const at::Tensor& first, const at::Tensor& second, int64_t count) {
  const auto all = rows_of_channels(input, mean);
  const at::Tensor scale = contiguous(weight);
  if (!all || !single_type(input, {grad, mean, rstd, scale, first, second})) return {};
  const at::Tensor own[] = {grad.contiguous(), input.contiguous(), mean.contiguous(), rstd.contiguous()};
  const at::Tensor sums = first.div(count).contiguous();
  const at::Tensor products = second.div(count).contiguous();
  at::Tensor out = at::empty(input.sizes(), input.options());
  AT_DISPATCH_FLOATING_TYPES(input.scalar_type(), "batch_norm_grad_of", [&] {
    const scalar_t* given[] = {data_of<scalar_t>(own[0]), data_of<scalar_t>(own[1]), data_of<scalar_t>(own[2]),
                               data_of<scalar_t>(own[3])};
    const scalar_t* weights = data_of<scalar_t>(scale);
    const scalar_t* of_channel[] = {data_of<scalar_t>(sums), data_of<scalar_t>(products)};
    scalar_t* to = out.mutable_data_ptr<scalar_t>();
    const auto& loops = row_loops<scalar_t>();
    for_each_piece(*all, [&](const Piece& p) {
      const int64_t c = p.row % input.size(1);
      loops.normed_gradient({given[1] + p.at, given[2][c], given[3][c], nullptr}, p.count, given[0] + p.at,
                            of_channel[0][c], of_channel[1][c], to + p.at);
      if (weights != nullptr) loops.scaled(to + p.at, p.count, weights[c], to + p.at);
    });
  });
  return out;
}

/// The gradients of a batch norm's input, weight and bias in training, of the two slopes.
template <bool by_rows>
Three batch_norm_grad_of(const at::Tensor& grad, const at::Tensor& input, const at::Tensor& mean,
                         const at::Tensor& rstd, const Optional& weight, const at::Tensor& first,
                         const at::Tensor& second, int64_t count) {
  at::Tensor result;
  if constexpr (by_rows) result = grad_of_rows(grad, input, mean, rstd, weight, first, second, count);
  if (!result.defined()) result = composed_grad(grad, input, mean, rstd, weight, first, second, count);
  const auto copied = [&](const at::Tensor& sum) { return sum.to(mean.scalar_type(), false, /*copy=*/true); };
  return {result, copied(second), copied(first)};
}

// --- in evaluation ---------------------------------------------------------------------------------------------------

/// The gradient of the input.
at::Tensor batch_norm_with_grad_input(const at::Tensor& grad, const Optional& weight, const at::Tensor& variance,
                                      double eps) {
  at::Tensor scale = variance.add(eps).rsqrt_();
  if (weight && weight->defined()) scale = scale * *weight;
  return (grad * spread(scale, grad)).to(grad.scalar_type());
}

/// The gradients of weight and bias; the results of shards of the batch are summed.
Two batch_norm_with_grad_affine(const at::Tensor& grad, const at::Tensor& input, const at::Tensor& mean,
                                const at::Tensor& variance, double eps) {
  const auto [first, second] = batch_norm_slopes(grad, input, mean, variance.add(eps).rsqrt_());
  return {second.to(mean.scalar_type()), first.to(mean.scalar_type())};
}

TORCH_LIBRARY_FRAGMENT(joinsum, library) {
  library.def(
      "batch_norm_of(Tensor input, Tensor total, Tensor squares, Tensor? weight, Tensor? bias, Tensor? running_mean, "
      "Tensor? running_var, SymInt count, float momentum, float eps, ScalarType statistics) -> (Tensor, Tensor, "
      "Tensor, Tensor, Tensor)");
  library.def(
      "batch_norm_training(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, "
      "float momentum, float eps) -> (Tensor, Tensor, Tensor, Tensor, Tensor)");
  library.def("batch_norm_slopes(Tensor grad, Tensor input, Tensor mean, Tensor rstd) -> (Tensor, Tensor)");
  library.def(
      "batch_norm_grad_of(Tensor grad, Tensor input, Tensor mean, Tensor rstd, Tensor? weight, Tensor first, Tensor "
      "second, SymInt count) -> (Tensor, Tensor, Tensor)");
  library.def(
      "batch_norm_with(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean, Tensor running_var, float eps) "
      "-> Tensor");
  library.def("batch_norm_with_grad_input(Tensor grad, Tensor? weight, Tensor variance, float eps) -> Tensor");
  library.def(
      "batch_norm_with_grad_affine(Tensor grad, Tensor input, Tensor mean, Tensor variance, float eps) -> (Tensor, "
      "Tensor)");
}

TORCH_LIBRARY_IMPL(joinsum, CompositeExplicitAutograd, library) {
  library.impl("batch_norm_of", &batch_norm_of);
  library.impl("batch_norm_training", &batch_norm_training<false>);
  library.impl("batch_norm_slopes", &batch_norm_slopes);
  library.impl("batch_norm_grad_of", &batch_norm_grad_of<false>);
  library.impl("batch_norm_with", &batch_norm_with);
  library.impl("batch_norm_with_grad_input", &batch_norm_with_grad_input);
  library.impl("batch_norm_with_grad_affine", &batch_norm_with_grad_affine);
}

TORCH_LIBRARY_IMPL(joinsum, CPU, library) {
  library.impl("batch_norm_grad_of", &batch_norm_grad_of<true>);
  library.impl("batch_norm_training", &batch_norm_training<true>);
}

}  // namespace
}  // namespace joinsum::kernels::torch_call

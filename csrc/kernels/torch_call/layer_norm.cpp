// Layer norms, computed into given memory, and their gradients alone, of which the functional form of the norm is
// torch's.

#include <algorithm>
#include <cmath>
#include <tuple>

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <torch/library.h>

#include "kernels/threads/parallel.h"
#include "kernels/torch_call/normed_rows.h"
#include "kernels/torch_call/processor_rows.h"

namespace joinsum::kernels::torch_call {
namespace {

// --- the norm --------------------------------------------------------------------------------------------------------

template <class T>
void norm_rows(const Rows& all, const T* x, const T* weight, const T* bias, double eps, T* out, T* mean, T* rstd) {
  const rows::RowLoops<T>& loops = row_loops<T>();
  const T count = static_cast<T>(all.length);
  threads::for_each_range(all.count, rows_per_thread(all.length), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const T* from = x + row * all.length;
      mean[row] = loops.sum(from, all.length) / count;
      const T variance = loops.sum_of_squares(from, all.length, mean[row]) / count;
      rstd[row] = T(1) / std::sqrt(variance + static_cast<T>(eps));
      loops.normed({from, mean[row], rstd[row], weight}, all.length, bias, out + row * all.length);
    }
  });
}

using Three = std::tuple<at::Tensor&, at::Tensor&, at::Tensor&>;

Three layer_norm_out(const at::Tensor& input, at::IntArrayRef normalized_shape, const std::optional<at::Tensor>& weight,
                     const std::optional<at::Tensor>& bias, double eps, at::Tensor& out, at::Tensor& mean,
                     at::Tensor& rstd) {
  const Rows all(input, normalized_shape);
  const at::Tensor x = input.contiguous();
  const at::Tensor scale = contiguous(weight);
  const at::Tensor shift = contiguous(bias);
  if (single_type(input, {scale, shift, mean})) {
    AT_DISPATCH_FLOATING_TYPES(input.scalar_type(), "layer_norm", [&] {
      norm_rows<scalar_t>(all, data_of<scalar_t>(x), data_of<scalar_t>(scale), data_of<scalar_t>(shift), eps,
                          out.mutable_data_ptr<scalar_t>(), mean.mutable_data_ptr<scalar_t>(),
                          rstd.mutable_data_ptr<scalar_t>());
    });
  } else {
    const auto [result, own_mean, own_rstd] = at::native_layer_norm(input, normalized_shape, weight, bias, eps);
    out.copy_(result);
    mean.copy_(own_mean);
    rstd.copy_(own_rstd);
  }
  return {out, mean, rstd};
}

// --- its gradients ---------------------------------------------------------------------------------------------------

/// What the gradients of a norm read.
struct Backward {
  at::Tensor grad;
  at::Tensor x;
  at::Tensor mean;
  at::Tensor rstd;
  Backward(const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& means, const at::Tensor& rstds)
      : grad(gradient.contiguous()), x(input.contiguous()), mean(means.contiguous()), rstd(rstds.contiguous()) {}
};

template <class T>
void input_gradient(const Rows& all, const Backward& given, const T* weight, T* out) {
  const rows::RowLoops<T>& loops = row_loops<T>();
  const T count = static_cast<T>(all.length);
  threads::for_each_range(all.count, rows_per_thread(all.length), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t at = row * all.length;
      const T* grad = data_of<T>(given.grad) + at;
      const rows::Normed<T> normed{data_of<T>(given.x) + at, data_of<T>(given.mean)[row], data_of<T>(given.rstd)[row],
                                   weight};
      T first;
      T second;
      loops.slopes(normed, all.length, grad, &first, &second);
      loops.normed_gradient(normed, all.length, grad, first / count, second / count, out + at);
    }
  });
}

/// By torch's operator, which reads the statistics as if they were contiguous.
at::Tensor composed_grad_input(const at::Tensor& grad, const at::Tensor& input, at::IntArrayRef normalized_shape,
                               const at::Tensor& mean, const at::Tensor& rstd,
                               const std::optional<at::Tensor>& weight) {
  return std::get<0>(at::native_layer_norm_backward(grad, input, normalized_shape, mean.contiguous(), rstd.contiguous(),
                                                    weight, {}, {true, false, false}));
}

at::Tensor& layer_norm_grad_input_out(const at::Tensor& grad, const at::Tensor& input, at::IntArrayRef normalized_shape,
                                      const at::Tensor& mean, const at::Tensor& rstd,
                                      const std::optional<at::Tensor>& weight, at::Tensor& out) {
  const Rows all(input, normalized_shape);
  const Backward given(grad, input, mean, rstd);
  const at::Tensor scale = contiguous(weight);
  if (single_type(input, {grad, scale, mean, rstd, out})) {
    AT_DISPATCH_FLOATING_TYPES(input.scalar_type(), "layer_norm_grad_input", [&] {
      input_gradient<scalar_t>(all, given, data_of<scalar_t>(scale), out.mutable_data_ptr<scalar_t>());
    });
  } else {
    out.copy_(composed_grad_input(given.grad, given.x, normalized_shape, given.mean, given.rstd, weight));
  }
  return out;
}

template <class T>
void affine_gradients(const Rows& all, const Backward& given, T* weight, T* bias) {
  for_columns(all, [&](int64_t begin, int64_t end) {
    std::fill(weight + begin, weight + end, T(0));
    std::fill(bias + begin, bias + end, T(0));
    row_loops<T>().add_affine(data_of<T>(given.x) + begin, data_of<T>(given.grad) + begin, all.count, all.length,
                              end - begin, data_of<T>(given.mean), data_of<T>(given.rstd), weight + begin,
                              bias + begin);
  });
}

std::tuple<at::Tensor, at::Tensor> composed_grad_affine(const at::Tensor& grad, const at::Tensor& input,
                                                        at::IntArrayRef normalized_shape, const at::Tensor& mean,
                                                        const at::Tensor& rstd) {
  const at::Tensor one = at::ones(normalized_shape, grad.options());
  auto [_, weight, bias] = at::native_layer_norm_backward(grad, input, normalized_shape, mean.contiguous(),
                                                          rstd.contiguous(), one, one, {false, true, true});
  return {weight, bias};
}

std::tuple<at::Tensor&, at::Tensor&> layer_norm_grad_affine_out(const at::Tensor& grad, const at::Tensor& input,
                                                                at::IntArrayRef normalized_shape,
                                                                const at::Tensor& mean, const at::Tensor& rstd,
                                                                at::Tensor& weight, at::Tensor& bias) {
  const Backward given(grad, input, mean, rstd);
  if (single_type(input, {grad, mean, rstd, weight, bias})) {
    AT_DISPATCH_FLOATING_TYPES(input.scalar_type(), "layer_norm_grad_affine", [&] {
      affine_gradients<scalar_t>(Rows(input, normalized_shape), given, weight.mutable_data_ptr<scalar_t>(),
                                 bias.mutable_data_ptr<scalar_t>());
    });
  } else {
    const auto [for_weight, for_bias] =
        composed_grad_affine(given.grad, given.x, normalized_shape, given.mean, given.rstd);
    weight.copy_(for_weight);
    bias.copy_(for_bias);
  }
  return {weight, bias};
}

// --- new results -----------------------------------------------------------------------------------------------------

at::Tensor layer_norm_grad_input(const at::Tensor& grad, const at::Tensor& input, at::IntArrayRef normalized_shape,
                                 const at::Tensor& mean, const at::Tensor& rstd,
                                 const std::optional<at::Tensor>& weight) {
  at::Tensor out = at::empty(input.sizes(), input.options());
  return layer_norm_grad_input_out(grad, input, normalized_shape, mean, rstd, weight, out);
}

/// The results of shards of the batch are summed.
std::tuple<at::Tensor, at::Tensor> layer_norm_grad_affine(const at::Tensor& grad, const at::Tensor& input,
                                                          at::IntArrayRef normalized_shape, const at::Tensor& mean,
                                                          const at::Tensor& rstd) {
  at::Tensor weight = at::empty(normalized_shape, grad.options());
  at::Tensor bias = at::empty(normalized_shape, grad.options());
  return layer_norm_grad_affine_out(grad, input, normalized_shape, mean, rstd, weight, bias);
}

TORCH_LIBRARY_FRAGMENT(joinsum, library) {
  library.def(
      "native_layer_norm.out(Tensor input, SymInt[] normalized_shape, Tensor? weight, Tensor? bias, float eps, *, "
      "Tensor(a!) input_out, Tensor(b!) mean_out, Tensor(c!) rstd_out) -> (Tensor(a!), Tensor(b!), Tensor(c!))");
  library.def(
      "layer_norm_grad_input(Tensor grad, Tensor input, SymInt[] normalized_shape, Tensor mean, Tensor rstd, Tensor? "
      "weight) -> Tensor");
  library.def(
      "layer_norm_grad_affine(Tensor grad, Tensor input, SymInt[] normalized_shape, Tensor mean, Tensor rstd) "
      "-> (Tensor, Tensor)");
  library.def(
      "layer_norm_grad_input.out(Tensor grad, Tensor input, SymInt[] normalized_shape, Tensor mean, Tensor rstd, "
      "Tensor? weight, *, Tensor(a!) grad_out) -> Tensor(a!)");
  library.def(
      "layer_norm_grad_affine.out(Tensor grad, Tensor input, SymInt[] normalized_shape, Tensor mean, Tensor rstd, *, "
      "Tensor(a!) weight_out, Tensor(b!) bias_out) -> (Tensor(a!), Tensor(b!))");
}

TORCH_LIBRARY_IMPL(joinsum, CompositeExplicitAutograd, library) {
  library.impl("layer_norm_grad_input", &composed_grad_input);
  library.impl("layer_norm_grad_affine", &composed_grad_affine);
}

TORCH_LIBRARY_IMPL(joinsum, CPU, library) {
  library.impl("layer_norm_grad_input", &layer_norm_grad_input);
  library.impl("layer_norm_grad_affine", &layer_norm_grad_affine);
  library.impl("native_layer_norm.out", &layer_norm_out);
  library.impl("layer_norm_grad_input.out", &layer_norm_grad_input_out);
  library.impl("layer_norm_grad_affine.out", &layer_norm_grad_affine_out);
}

}  // namespace
}  // namespace joinsum::kernels::torch_call

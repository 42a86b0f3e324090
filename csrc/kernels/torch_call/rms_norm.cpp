// RMS norms and their gradients, computed into given memory: layer norms without a mean.

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

using Two = std::tuple<at::Tensor&, at::Tensor&>;

// --- by torch's operators --------------------------------------------------------------------------------------------

/// The axes that are normed.
std::vector<int64_t> normed_axes(const at::Tensor& input, at::IntArrayRef normalized_shape) {
  std::vector<int64_t> axes;
  for (size_t i = normalized_shape.size(); i > 0; --i) axes.push_back(input.dim() - static_cast<int64_t>(i));
  return axes;
}

std::tuple<at::Tensor, at::Tensor> composed(const at::Tensor& input, at::IntArrayRef normalized_shape,
                                            const std::optional<at::Tensor>& weight, double eps) {
  const at::Tensor x = wide(input);
  const at::Tensor rstd = x.square().mean(normed_axes(input, normalized_shape), true).add_(eps).rsqrt_();
  at::Tensor result = (x * rstd).to(input.scalar_type());
  if (weight && weight->defined()) result = result * *weight;
  return {result.contiguous(), rstd};
}

at::Tensor composed_grad_input(const at::Tensor& grad, const at::Tensor& input, at::IntArrayRef normalized_shape,
                               const at::Tensor& rstd, const std::optional<at::Tensor>& weight) {
  const at::Tensor normed = wide(input) * rstd;
  const at::Tensor g = weight && weight->defined() ? wide(grad) * *weight : wide(grad);
  const at::Tensor slope = (g * normed).mean(normed_axes(input, normalized_shape), true);
  return ((g - normed * slope) * rstd).to(input.scalar_type()).contiguous();
}

at::Tensor composed_grad_weight(const at::Tensor& grad, const at::Tensor& input, at::IntArrayRef normalized_shape,
                                const at::Tensor& rstd) {
  return (wide(grad) * wide(input) * rstd).sum_to_size(normalized_shape).to(grad.scalar_type()).contiguous();
}

// --- by loops over rows ----------------------------------------------------------------------------------------------

template <class T>
void norm_rows(const Rows& all, const T* x, const T* weight, double eps, T* out, T* rstd) {
  const rows::RowLoops<T>& loops = row_loops<T>();
  const T count = static_cast<T>(all.length);
  threads::for_each_range(all.count, rows_per_thread(all.length), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const T* from = x + row * all.length;
      const T square = loops.sum_of_squares(from, all.length, T(0)) / count;
      rstd[row] = T(1) / std::sqrt(square + static_cast<T>(eps));
      loops.normed({from, T(0), rstd[row], weight}, all.length, nullptr, out + row * all.length);
    }
  });
}

Two rms_norm_out(const at::Tensor& input, at::IntArrayRef normalized_shape, const std::optional<at::Tensor>& weight,
                 double eps, at::Tensor& out, at::Tensor& rstd) {
  const at::Tensor scale = contiguous(weight);
  if (single_type(input, {scale, out, rstd})) {
    const at::Tensor x = input.contiguous();
    AT_DISPATCH_FLOATING_TYPES(input.scalar_type(), "rms_norm", [&] {
      norm_rows<scalar_t>(Rows(input, normalized_shape), data_of<scalar_t>(x), data_of<scalar_t>(scale), eps,
                          out.mutable_data_ptr<scalar_t>(), rstd.mutable_data_ptr<scalar_t>());
    });
  } else {
    const auto [result, own] = composed(input, normalized_shape, weight, eps);
    out.copy_(result);
    rstd.copy_(own);
  }
  return {out, rstd};
}

template <class T>
void input_gradient(const Rows& all, const T* grad, const T* x, const T* rstd, const T* weight, T* out) {
  const rows::RowLoops<T>& loops = row_loops<T>();
  const T count = static_cast<T>(all.length);
  threads::for_each_range(all.count, rows_per_thread(all.length), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t at = row * all.length;
      const rows::Normed<T> normed{x + at, T(0), rstd[row], weight};
      T first;
      T second;
      loops.slopes(normed, all.length, grad + at, &first, &second);
      loops.normed_gradient(normed, all.length, grad + at, T(0), second / count, out + at);
    }
  });
}

at::Tensor& rms_norm_grad_input_out(const at::Tensor& grad, const at::Tensor& input, at::IntArrayRef normalized_shape,
                                    const at::Tensor& rstd, const std::optional<at::Tensor>& weight, at::Tensor& out) {
  const at::Tensor scale = contiguous(weight);
  if (single_type(input, {grad, scale, rstd, out})) {
    const at::Tensor g = grad.contiguous();
    const at::Tensor x = input.contiguous();
    const at::Tensor r = rstd.contiguous();
    AT_DISPATCH_FLOATING_TYPES(input.scalar_type(), "rms_norm_grad_input", [&] {
      input_gradient<scalar_t>(Rows(input, normalized_shape), data_of<scalar_t>(g), data_of<scalar_t>(x),
                               data_of<scalar_t>(r), data_of<scalar_t>(scale), out.mutable_data_ptr<scalar_t>());
    });
  } else {
    out.copy_(composed_grad_input(grad, input, normalized_shape, rstd, weight));
  }
  return out;
}

template <class T>
void weight_gradient(const Rows& all, const T* grad, const T* x, const T* rstd, T* out) {
  const std::vector<T> means(static_cast<size_t>(all.count), T(0));
  for_columns(all, [&](int64_t begin, int64_t end) {
    std::fill(out + begin, out + end, T(0));
    row_loops<T>().add_affine(x + begin, grad + begin, all.count, all.length, end - begin, means.data(), rstd,
                              out + begin, nullptr);
  });
}

at::Tensor& rms_norm_grad_weight_out(const at::Tensor& grad, const at::Tensor& input, at::IntArrayRef normalized_shape,
                                     const at::Tensor& rstd, at::Tensor& out) {
  if (single_type(input, {grad, rstd, out})) {
    const at::Tensor g = grad.contiguous();
    const at::Tensor x = input.contiguous();
    const at::Tensor r = rstd.contiguous();
    AT_DISPATCH_FLOATING_TYPES(input.scalar_type(), "rms_norm_grad_weight", [&] {
      weight_gradient<scalar_t>(Rows(input, normalized_shape), data_of<scalar_t>(g), data_of<scalar_t>(x),
                                data_of<scalar_t>(r), out.mutable_data_ptr<scalar_t>());
    });
  } else {
    out.copy_(composed_grad_weight(grad, input, normalized_shape, rstd));
  }
  return out;
}

// --- new results -----------------------------------------------------------------------------------------------------

std::tuple<at::Tensor, at::Tensor> rms_norm(const at::Tensor& input, at::IntArrayRef normalized_shape,
                                            const std::optional<at::Tensor>& weight, double eps) {
  if (!single_type(input, {contiguous(weight)})) return composed(input, normalized_shape, weight, eps);
  std::vector<int64_t> statistics = input.sizes().vec();
  for (const int64_t axis : normed_axes(input, normalized_shape)) statistics[static_cast<size_t>(axis)] = 1;
  at::Tensor out = at::empty(input.sizes(), input.options());
  at::Tensor rstd = at::empty(statistics, input.options());
  rms_norm_out(input, normalized_shape, weight, eps, out, rstd);
  return {out, rstd};
}

at::Tensor rms_norm_grad_input(const at::Tensor& grad, const at::Tensor& input, at::IntArrayRef normalized_shape,
                               const at::Tensor& rstd, const std::optional<at::Tensor>& weight) {
  at::Tensor out = at::empty(input.sizes(), input.options());
  return rms_norm_grad_input_out(grad, input, normalized_shape, rstd, weight, out);
}

at::Tensor rms_norm_grad_weight(const at::Tensor& grad, const at::Tensor& input, at::IntArrayRef normalized_shape,
                                const at::Tensor& rstd) {
  at::Tensor out = at::empty(normalized_shape, grad.options());
  return rms_norm_grad_weight_out(grad, input, normalized_shape, rstd, out);
}

TORCH_LIBRARY_FRAGMENT(joinsum, library) {
  library.def("rms_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight, float eps) -> (Tensor, Tensor)");
  library.def(
      "rms_norm.out(Tensor input, SymInt[] normalized_shape, Tensor? weight, float eps, *, Tensor(a!) input_out, "
      "Tensor(b!) rstd_out) -> (Tensor(a!), Tensor(b!))");
  library.def(
      "rms_norm_grad_input(Tensor grad, Tensor input, SymInt[] normalized_shape, Tensor rstd, Tensor? weight) "
      "-> Tensor");
  library.def(
      "rms_norm_grad_input.out(Tensor grad, Tensor input, SymInt[] normalized_shape, Tensor rstd, Tensor? weight, *, "
      "Tensor(a!) grad_out) -> Tensor(a!)");
  library.def("rms_norm_grad_weight(Tensor grad, Tensor input, SymInt[] normalized_shape, Tensor rstd) -> Tensor");
  library.def(
      "rms_norm_grad_weight.out(Tensor grad, Tensor input, SymInt[] normalized_shape, Tensor rstd, *, "
      "Tensor(a!) weight_out) -> Tensor(a!)");
}

TORCH_LIBRARY_IMPL(joinsum, CompositeExplicitAutograd, library) {
  library.impl("rms_norm", &composed);
  library.impl("rms_norm_grad_input", &composed_grad_input);
  library.impl("rms_norm_grad_weight", &composed_grad_weight);
}

TORCH_LIBRARY_IMPL(joinsum, CPU, library) {
  library.impl("rms_norm", &rms_norm);
  library.impl("rms_norm.out", &rms_norm_out);
  library.impl("rms_norm_grad_input", &rms_norm_grad_input);
  library.impl("rms_norm_grad_input.out", &rms_norm_grad_input_out);
  library.impl("rms_norm_grad_weight", &rms_norm_grad_weight);
  library.impl("rms_norm_grad_weight.out", &rms_norm_grad_weight_out);
}

}  // namespace
}  // namespace joinsum::kernels::torch_call

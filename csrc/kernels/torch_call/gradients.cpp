// Gradients that ATen has only together with others, and weight norms of operands of any strides.

#include <array>
#include <tuple>

#include <ATen/ATen.h>
#include <torch/library.h>

namespace joinsum::kernels::torch_call {
namespace {

using Optional = std::optional<at::Tensor>;
using Two = std::tuple<at::Tensor, at::Tensor>;

// --- weight norms ----------------------------------------------------------------------------------------------------

/// ATen's weight norm, which reads its operands as if they were contiguous: the weight, and the norms.
Two weight_norm(const at::Tensor& v, const at::Tensor& g, int64_t dim) {
  return at::_weight_norm_interface(v.contiguous(), g.contiguous(), dim);
}

/// The gradients of a weight norm's direction and length.
Two weight_norm_backward(const at::Tensor& grad, const at::Tensor& v, const at::Tensor& g, const at::Tensor& norms,
                         int64_t dim) {
  return at::_weight_norm_interface_backward(grad.contiguous(), v.contiguous(), g.contiguous(), norms.contiguous(),
                                             dim);
}

// --- group norms -----------------------------------------------------------------------------------------------------

/// The gradients of a group norm's weight and bias; the results of shards of the batch are summed.
Two group_norm_grad_affine(const at::Tensor& grad, const at::Tensor& input, const at::Tensor& mean,
                           const at::Tensor& rstd, int64_t n, int64_t c, int64_t s, int64_t group) {
  auto [_, weight, bias] =
      at::native_group_norm_backward(grad.contiguous(), input.contiguous(), mean.contiguous(), rstd.contiguous(),
                                     at::ones({c}, grad.options()), n, c, s, group, {false, true, true});
  return {weight, bias};
}

/// The gradient of a group norm's input.
at::Tensor group_norm_grad_input(const at::Tensor& grad, const at::Tensor& input, const at::Tensor& mean,
                                 const at::Tensor& rstd, const Optional& weight, int64_t n, int64_t c, int64_t s,
                                 int64_t group) {
  return std::get<0>(at::native_group_norm_backward(grad.contiguous(), input.contiguous(), mean.contiguous(),
                                                    rstd.contiguous(), weight, n, c, s, group, {true, false, false}));
}

// --- convolutions ----------------------------------------------------------------------------------------------------

/// Whether oneDNN computes the gradient of a weight of these sizes, [c, 1, h, w] of a convolution of each channel by
/// itself, several times faster of images with channels last, also where they are copied for it. Measured on Zen 5: at
/// windows of 3 x 3 it does not, at 5 x 5 it does.
bool prefers_channels_last(const at::Tensor& grad, at::IntArrayRef sizes, int64_t groups) {
  constexpr int64_t kSmallWindow = 9;
  return grad.dim() == 4 && grad.is_cpu() && grad.scalar_type() == at::kFloat && groups > 1 && sizes[0] == groups &&
         sizes[1] == 1 && sizes[2] * sizes[3] > kSmallWindow;
}

/// The gradient of a convolution's input or weight: of that which is absent, whose shape is `sizes`. The input's of
/// shards of the output channels are summed, the weight's of shards of the batch.
at::Tensor convolution_gradient(const at::Tensor& grad, const Optional& input, const Optional& weight,
                                at::IntArrayRef sizes, at::IntArrayRef stride, at::IntArrayRef padding,
                                at::IntArrayRef dilation, bool transposed, at::IntArrayRef output_padding,
                                int64_t groups) {
  // ATen reads only the shape of what the gradient is of; oneDNN refuses an expanded tensor.
  const auto given = [&](const Optional& operand) {
    return operand && operand->defined() ? *operand : at::empty(sizes, grad.options());
  };
  const bool of_input = !input || !input->defined();
  if (!of_input && !transposed && prefers_channels_last(grad, sizes, groups)) {
    const auto copied = [](const at::Tensor& x) { return x.contiguous(at::MemoryFormat::ChannelsLast); };
    return std::get<1>(at::convolution_backward(copied(grad), copied(*input), given(weight), {}, stride, padding,
                                                dilation, false, output_padding, groups, {false, true, false}))
        .contiguous();
  }
  const auto [to_input, to_weight, _] =
      at::convolution_backward(grad, given(input), given(weight), {}, stride, padding, dilation, transposed,
                               output_padding, groups, {of_input, !of_input, false});
  return of_input ? to_input : to_weight;
}

TORCH_LIBRARY_FRAGMENT(joinsum, library) {
  library.def("weight_norm(Tensor v, Tensor g, SymInt dim) -> (Tensor, Tensor)");
  library.def("weight_norm_backward(Tensor grad, Tensor v, Tensor g, Tensor norms, SymInt dim) -> (Tensor, Tensor)");
  library.def(
      "group_norm_grad_affine(Tensor grad, Tensor input, Tensor mean, Tensor rstd, SymInt n, SymInt c, SymInt s, "
      "SymInt group) -> (Tensor, Tensor)");
  library.def(
      "group_norm_grad_input(Tensor grad, Tensor input, Tensor mean, Tensor rstd, Tensor? weight, SymInt n, SymInt c, "
      "SymInt s, SymInt group) -> Tensor");
  library.def(
      "convolution_gradient(Tensor grad, Tensor? input, Tensor? weight, SymInt[] sizes, SymInt[] stride, SymInt[] "
      "padding, SymInt[] dilation, bool transposed, SymInt[] output_padding, SymInt groups) -> Tensor");
}

TORCH_LIBRARY_IMPL(joinsum, CompositeExplicitAutograd, library) {
  library.impl("weight_norm", &weight_norm);
  library.impl("weight_norm_backward", &weight_norm_backward);
  library.impl("group_norm_grad_affine", &group_norm_grad_affine);
  library.impl("group_norm_grad_input", &group_norm_grad_input);
  library.impl("convolution_gradient", &convolution_gradient);
}

}  // namespace
}  // namespace joinsum::kernels::torch_call

// Images of another size: torch's kernels of all modes as one operator, as torch traces most of them as gathers.

#include <ATen/ATen.h>
#include <torch/library.h>

#include "base/check.h"

namespace joinsum::kernels::torch_call {
namespace {

using Scales = std::optional<at::ArrayRef<double>>;

/// The scale of each axis where the caller gave scales, as ATen's kernels take them.
std::optional<double> scale(const Scales& scales, size_t axis) {
  return scales ? std::optional<double>((*scales)[axis]) : std::nullopt;
}

/// The result in the memory layout that fake tensors say: channels last where those of the operand are.
at::Tensor laid_out_like(const at::Tensor& x, const at::Tensor& result) {
  const bool last = x.dim() == 4 && x.is_contiguous(at::MemoryFormat::ChannelsLast) && !x.is_contiguous();
  return result.contiguous(last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous);
}

[[noreturn]] void refuse(std::string_view mode, size_t axes) {
  throw KernelError(concatenate("resize: no such mode for images of so many axes: mode=", mode, ", axes=", axes));
}

/// [n, c, *s] of other extents *t, as `torch.nn.functional.interpolate` computes them.
at::Tensor resized(const at::Tensor& x, at::IntArrayRef size, std::string_view mode, bool align_corners,
                   Scales scales) {
  const size_t axes = size.size();
  const auto first = scale(scales, 0);
  if (axes == 1) {
    if (mode == "nearest") return at::upsample_nearest1d(x, size, first);
    if (mode == "nearest-exact") return at::_upsample_nearest_exact1d(x, size, first);
    if (mode == "linear") return at::upsample_linear1d(x, size, align_corners, first);
    refuse(mode, axes);
  }
  const auto second = scale(scales, 1);
  if (axes == 2) {
    if (mode == "nearest") return at::upsample_nearest2d(x, size, first, second);
    if (mode == "nearest-exact") return at::_upsample_nearest_exact2d(x, size, first, second);
    if (mode == "bilinear") return at::upsample_bilinear2d(x, size, align_corners, first, second);
    if (mode == "bicubic") return at::upsample_bicubic2d(x, size, align_corners, first, second);
    refuse(mode, axes);
  }
  const auto third = scale(scales, 2);
  if (mode == "nearest") return at::upsample_nearest3d(x, size, first, second, third);
  if (mode == "nearest-exact") return at::_upsample_nearest_exact3d(x, size, first, second, third);
  if (mode == "trilinear") return at::upsample_trilinear3d(x, size, align_corners, first, second, third);
  refuse(mode, axes);
}

/// The gradient of `x`, whose shape is `sizes`.
at::Tensor resized_backward(const at::Tensor& grad, at::IntArrayRef sizes, std::string_view mode, bool align_corners,
                            Scales scales) {
  const at::IntArrayRef size = grad.sizes().slice(2);
  const size_t axes = size.size();
  const auto first = scale(scales, 0);
  if (axes == 1) {
    if (mode == "nearest") return at::upsample_nearest1d_backward(grad, size, sizes, first);
    if (mode == "nearest-exact") return at::_upsample_nearest_exact1d_backward(grad, size, sizes, first);
    if (mode == "linear") return at::upsample_linear1d_backward(grad, size, sizes, align_corners, first);
    refuse(mode, axes);
  }
  const auto second = scale(scales, 1);
  if (axes == 2) {
    if (mode == "nearest") return at::upsample_nearest2d_backward(grad, size, sizes, first, second);
    if (mode == "nearest-exact") return at::_upsample_nearest_exact2d_backward(grad, size, sizes, first, second);
    if (mode == "bilinear") return at::upsample_bilinear2d_backward(grad, size, sizes, align_corners, first, second);
    if (mode == "bicubic") return at::upsample_bicubic2d_backward(grad, size, sizes, align_corners, first, second);
    refuse(mode, axes);
  }
  const auto third = scale(scales, 2);
  if (mode == "nearest") return at::upsample_nearest3d_backward(grad, size, sizes, first, second, third);
  if (mode == "nearest-exact") return at::_upsample_nearest_exact3d_backward(grad, size, sizes, first, second, third);
  if (mode == "trilinear") {
    return at::upsample_trilinear3d_backward(grad, size, sizes, align_corners, first, second, third);
  }
  refuse(mode, axes);
}

at::Tensor resize(const at::Tensor& x, at::IntArrayRef size, std::string_view mode, bool align_corners, Scales scales) {
  return laid_out_like(x, resized(x, size, mode, align_corners, scales));
}

at::Tensor resize_backward(const at::Tensor& grad, at::IntArrayRef sizes, std::string_view mode, bool align_corners,
                           Scales scales) {
  return laid_out_like(grad, resized_backward(grad, sizes, mode, align_corners, scales));
}

TORCH_LIBRARY_FRAGMENT(joinsum, library) {
  library.def("resize(Tensor x, SymInt[] size, str mode, bool align_corners, float[]? scales) -> Tensor");
  library.def("resize_backward(Tensor grad, SymInt[] sizes, str mode, bool align_corners, float[]? scales) -> Tensor");
}

TORCH_LIBRARY_IMPL(joinsum, CompositeExplicitAutograd, library) {
  library.impl("resize", &resize);
  library.impl("resize_backward", &resize_backward);
}

}  // namespace
}  // namespace joinsum::kernels::torch_call

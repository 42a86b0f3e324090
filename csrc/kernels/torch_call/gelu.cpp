// The gelu of the error function and its gradient in single precision, in loops of our own; what else there is, is
// torch's.

#include <ATen/ATen.h>
#include <torch/library.h>

#include "kernels/threads/parallel.h"
#include "kernels/torch_call/processor_rows.h"

namespace joinsum::kernels::torch_call {
namespace {

constexpr int64_t kElementsOfThread = 16'384;

/// Whether a tensor's elements are single numbers of the CPU's, in one stretch.
bool is_stretch(const at::Tensor& x) {
  return x.is_cpu() && x.scalar_type() == at::kFloat && x.layout() == at::kStrided && x.is_non_overlapping_and_dense();
}

bool alike(const at::Tensor& a, const at::Tensor& b) { return a.sizes() == b.sizes() && a.strides() == b.strides(); }

at::Tensor& gelu_out(const at::Tensor& self, c10::string_view approximate, at::Tensor& out) {
  const rows::RowLoops<float>& loops = row_loops<float>();
  if (approximate != "none" || !is_stretch(self) || !is_stretch(out) || !alike(self, out))
    return at::gelu_out(out, self, approximate);
  const float* const x = self.const_data_ptr<float>();
  float* const to = out.mutable_data_ptr<float>();
  threads::for_each_range(self.numel(), kElementsOfThread,
                          [&](int64_t begin, int64_t end) { loops.gelu(x + begin, end - begin, to + begin); });
  return out;
}

at::Tensor& gelu_backward_out(const at::Tensor& grad, const at::Tensor& self, c10::string_view approximate,
                              at::Tensor& out) {
  const rows::RowLoops<float>& loops = row_loops<float>();
  const bool own = approximate == "none" && is_stretch(grad) && is_stretch(self) && is_stretch(out);
  if (!own || !alike(grad, self) || !alike(self, out)) return at::gelu_backward_out(out, grad, self, approximate);
  const float* const above = grad.const_data_ptr<float>();
  const float* const x = self.const_data_ptr<float>();
  float* const to = out.mutable_data_ptr<float>();
  threads::for_each_range(self.numel(), kElementsOfThread, [&](int64_t begin, int64_t end) {
    loops.gelu_slopes(above + begin, x + begin, end - begin, to + begin);
  });
  return out;
}

at::Tensor gelu(const at::Tensor& self, c10::string_view approximate) {
  at::Tensor out = at::empty_like(self);
  return gelu_out(self, approximate, out);
}

at::Tensor gelu_backward(const at::Tensor& grad, const at::Tensor& self, c10::string_view approximate) {
  at::Tensor out = at::empty_like(self);
  return gelu_backward_out(grad, self, approximate, out);
}

TORCH_LIBRARY_FRAGMENT(joinsum, library) {
  library.def("gelu(Tensor self, *, str approximate='none') -> Tensor");
  library.def("gelu_backward(Tensor grad_output, Tensor self, *, str approximate='none') -> Tensor");
  library.def("gelu.out(Tensor self, *, str approximate='none', Tensor(a!) out) -> Tensor(a!)");
  library.def(
      "gelu_backward.grad_input(Tensor grad_output, Tensor self, *, str approximate='none', Tensor(a!) grad_input) -> "
      "Tensor(a!)");
}

TORCH_LIBRARY_IMPL(joinsum, CompositeExplicitAutograd, library) {
  library.impl("gelu", &gelu);
  library.impl("gelu_backward", &gelu_backward);
}

TORCH_LIBRARY_IMPL(joinsum, CPU, library) {
  library.impl("gelu.out", &gelu_out);
  library.impl("gelu_backward.grad_input", &gelu_backward_out);
}

TORCH_LIBRARY_IMPL(joinsum, CUDA, library) {
  library.impl("gelu.out", &gelu_out);
  library.impl("gelu_backward.grad_input", &gelu_backward_out);
}

}  // namespace
}  // namespace joinsum::kernels::torch_call

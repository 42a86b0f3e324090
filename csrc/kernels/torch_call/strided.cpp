// as_strided and as_strided_scatter of the elements of a tensor, in row-major order, as new tensors.

#include <ATen/ATen.h>
#include <torch/library.h>

namespace joinsum::kernels::torch_call {
namespace {

/// A copy of what `as_strided` sees of the elements of `input`, row-major.
at::Tensor strided(const at::Tensor& input, at::IntArrayRef size, at::IntArrayRef stride, int64_t offset) {
  return input.contiguous().as_strided(size, stride, offset).clone(at::MemoryFormat::Contiguous);
}

/// A row-major copy of `input` with `source` where `as_strided` sees its elements.
at::Tensor strided_scatter(const at::Tensor& input, const at::Tensor& source, at::IntArrayRef size,
                           at::IntArrayRef stride, int64_t offset) {
  at::Tensor out = input.clone(at::MemoryFormat::Contiguous);
  out.as_strided(size, stride, offset).copy_(source);
  return out;
}

TORCH_LIBRARY_FRAGMENT(joinsum, library) {
  library.def("strided(Tensor input, SymInt[] size, SymInt[] stride, SymInt offset) -> Tensor");
  library.def("strided_scatter(Tensor input, Tensor source, SymInt[] size, SymInt[] stride, SymInt offset) -> Tensor");
}

TORCH_LIBRARY_IMPL(joinsum, CompositeExplicitAutograd, library) {
  library.impl("strided", &strided);
  library.impl("strided_scatter", &strided_scatter);
}

}  // namespace
}  // namespace joinsum::kernels::torch_call

// An assertion of a program as an operator.

#include <stdexcept>
#include <string>

#include <ATen/ATen.h>
#include <torch/library.h>

namespace joinsum::kernels::torch_call {
namespace {

/// The condition, a tensor of no axes, as a truth value; raises RuntimeError with the program's own message where it is
/// false.
at::Tensor checked(const at::Tensor& condition, c10::string_view message) {
  if (!condition.item<bool>()) throw std::runtime_error(std::string(message));
  return condition.to(at::kBool, /*non_blocking=*/false, /*copy=*/true);
}

at::Tensor without_values(const at::Tensor& condition, c10::string_view /*message*/) {
  return at::empty({}, condition.options().dtype(at::kBool));
}

TORCH_LIBRARY_FRAGMENT(joinsum, library) { library.def("checked(Tensor condition, str message) -> Tensor"); }

TORCH_LIBRARY_IMPL(joinsum, CompositeExplicitAutograd, library) { library.impl("checked", &checked); }

TORCH_LIBRARY_IMPL(joinsum, Meta, library) { library.impl("checked", &without_values); }

}  // namespace
}  // namespace joinsum::kernels::torch_call

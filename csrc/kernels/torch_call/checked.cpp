// Assertions of a program as operators.

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

/// Whether a batch of matrices could be factored, which is true: raises torch's own error for the first that could not
/// be. `info` is 0 for each matrix that could be, `name` the function that users call.
at::Tensor checked_factors(const at::Tensor& info, c10::string_view name, bool is_matrix) {
  try {
    at::_linalg_check_errors(info.contiguous(), name, is_matrix);
  } catch (const c10::LinAlgError&) {
    throw;
  } catch (const c10::Error& error) {
    throw std::runtime_error(error.what_without_backtrace());
  }
  return at::ones({}, info.options().dtype(at::kBool));
}

template <class... Arguments>
at::Tensor without_values(const at::Tensor& x, Arguments... /*arguments*/) {
  return at::empty({}, x.options().dtype(at::kBool));
}

TORCH_LIBRARY_FRAGMENT(joinsum, library) {
  library.def("checked(Tensor condition, str message) -> Tensor");
  library.def("checked_factors(Tensor info, str name, bool is_matrix) -> Tensor");
}

TORCH_LIBRARY_IMPL(joinsum, CompositeExplicitAutograd, library) {
  library.impl("checked", &checked);
  library.impl("checked_factors", &checked_factors);
}

TORCH_LIBRARY_IMPL(joinsum, Meta, library) {
  library.impl("checked", &without_values<c10::string_view>);
  library.impl("checked_factors", &without_values<c10::string_view, bool>);
}

}  // namespace
}  // namespace joinsum::kernels::torch_call

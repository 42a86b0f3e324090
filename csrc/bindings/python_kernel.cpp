#include "bindings/python_kernel.h"

#include <torch/csrc/autograd/python_variable.h>

#include "base/check.h"

namespace joinsum::bindings {
namespace {

bool interpreter_runs() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsInitialized() != 0 && Py_IsFinalizing() == 0;
#else
  return Py_IsInitialized() != 0 && _Py_IsFinalizing() == 0;
#endif
}

}  // namespace

std::string summary_of(const py::error_already_set& error) {
  const auto type = py::str(error.type().attr("__name__")).cast<std::string>();
  std::string text;
  try {
    text = py::str(error.value()).cast<std::string>();
  } catch (const py::error_already_set&) {
    text = "it has no text";
  }
  return text.empty() ? type : type + ": " + text;
}

PythonFunction::PythonFunction(std::string kernel, py::object function)
    : kernel_(std::move(kernel)), function_(new py::object(std::move(function)), [](py::object* held) {
        if (interpreter_runs()) {
          const py::gil_scoped_acquire lock;
          delete held;
        }
      }) {}

at::Tensor PythonFunction::call(const std::vector<at::Tensor>& operands) const {
  const py::gil_scoped_acquire lock;
  py::tuple arguments(operands.size());
  for (size_t i = 0; i < operands.size(); ++i) arguments[i] = operands[i];
  // The function may use autograd, which runs leave out.
  const auto state = c10::impl::tls_local_dispatch_key_set();
  const c10::impl::ForceDispatchKeyGuard with_autograd(
      state.included_ | c10::DispatchKeySet(c10::DispatchKey::ADInplaceOrView),
      state.excluded_ - c10::autograd_dispatch_keyset_with_ADInplaceOrView);
  py::object result;
  try {
    result = (*function_)(*arguments);
  } catch (py::error_already_set& error) {
    if (!error.matches(PyExc_Exception)) throw;
    const std::string message = concatenate("kernel ", kernel_, ": its function raised ", summary_of(error));
    const py::object type = py::module_::import("joinsum._C").attr("KernelError");
    py::raise_from(error, type.ptr(), message.c_str());
    throw py::error_already_set();
  }
  if (!THPVariable_Check(result.ptr())) {
    const auto type = py::str(py::type::of(result).attr("__name__")).cast<std::string>();
    throw KernelError(concatenate("kernel ", kernel_, ": its function returns no tensor: returned=", type));
  }
  const at::Tensor tensor = result.cast<at::Tensor>().detach();
  JOINSUM_KERNEL_CHECK(tensor.layout() == at::kStrided && tensor.device() == operands[0].device(), "kernel ", kernel_,
                       ": its function returns no dense tensor on the operands' device: layout=", tensor.layout(),
                       ", device=", tensor.device(), ", operands' device=", operands[0].device());
  return tensor;
}

Dims PythonFunction::shape(const std::vector<Dims>& operands) const {
  const py::gil_scoped_acquire lock;
  try {
    return (*function_)(operands).cast<Dims>();
  } catch (const py::error_already_set& error) {
    throw KernelError(
        concatenate("kernel ", kernel_, ": its shape rule raised ", summary_of(error), ": operands=", operands));
  }
}

}  // namespace joinsum::bindings

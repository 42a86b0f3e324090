#include "base/check.h"
#include "bindings/bindings.h"

namespace joinsum::bindings {
namespace {

/// Makes the exception `joinsum.<name>`, which `CppError` becomes.
template <class CppError>
void bind_error(py::module_& module, const char* name, const py::object& bases, const char* doc) {
  py::object error = py::register_exception<CppError>(module, name, bases);
  error.attr("__module__") = "joinsum";
  error.attr("__doc__") = doc;
}

void bind_errors(py::module_& module) {
  const py::object exception = py::reinterpret_borrow<py::object>(PyExc_Exception);
  const py::object value_error = py::reinterpret_borrow<py::object>(PyExc_ValueError);
  const py::object runtime_error = py::reinterpret_borrow<py::object>(PyExc_RuntimeError);
  // Registered first, so tried last: the others derive from it.
  bind_error<Error>(module, "Error", exception, "Base of every error that joinsum raises on purpose.");
  const py::object base = module.attr("Error");
  bind_error<PlanError>(module, "PlanError", py::make_tuple(base, value_error),
                        "The caller's fault: a plan, type or argument that cannot be right.");
  bind_error<KernelError>(module, "KernelError", py::make_tuple(base, runtime_error),
                          "A kernel that is unknown, misdeclared or failed on its operands.");
  bind_error<TransportError>(module, "TransportError", py::make_tuple(base, runtime_error),
                             "A site that is lost, silent or in disagreement with the others.");
  bind_error<InternalError>(module, "InternalError", py::make_tuple(base, runtime_error),
                            "A defect of joinsum: one of its own invariants does not hold. Please report it.");
}

}  // namespace
}  // namespace joinsum::bindings

PYBIND11_MODULE(_C, module) {
  using namespace joinsum::bindings;  // NOLINT: the module's parts
  module.doc() = "The C++ core of joinsum; use the package joinsum instead.";
  bind_errors(module);
  bind_base(module);
  bind_kernels(module);
  bind_tra(module);
  bind_einsum(module);
  bind_ia(module);
  bind_optimizer(module);
  bind_runtime(module);
  bind_sparse_tensor(module);
  bind_sparse(module);
  bind_tensors(module);
}

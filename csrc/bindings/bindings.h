#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "base/dtype.h"
#include "kernels/table/table.h"
#include "relation/key_expression.h"

/// The Python module joinsum._C: every name here is one of csrc's, and nothing is decided here. The package
/// python/joinsum builds what users see on top of it; docs of the names are in its stubs (_C.pyi).
namespace joinsum::bindings {

namespace py = pybind11;

/// Released while C++ runs: anything that plans, moves data or may wait for another site.
using WithoutGil = py::call_guard<py::gil_scoped_release>;

void bind_base(py::module_& module);
void bind_kernels(py::module_& module);
void bind_einsum(py::module_& module);
void bind_tra(py::module_& module);
void bind_ia(py::module_& module);
void bind_optimizer(py::module_& module);
void bind_runtime(py::module_& module);
void bind_sparse_tensor(py::module_& module);
void bind_sparse(py::module_& module);
void bind_tensors(py::module_& module);

/// A class that users see, as `joinsum.<name>`.
template <class T, class Holder = std::unique_ptr<T>>
py::class_<T, Holder> public_class(py::module_& module, const char* name, const char* doc) {
  py::class_<T, Holder> bound(module, name, doc);
  bound.attr("__module__") = "joinsum";
  return bound;
}

/// The dtype with that printed name; raises PlanError naming the dtypes there are.
DType dtype_named(const std::string& name);

/// Printed names of the domains of kernels; raises PlanError for another one.
const char* domain_name(Domain domain);
Domain domain_named(const std::string& name);

/// Lookup tables as Python gives them: a list of integers by name.
using TableValues = std::map<std::string, std::vector<int64_t>>;
relation::LookupTables lookup_tables(const TableValues& values);

}  // namespace joinsum::bindings

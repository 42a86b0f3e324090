#pragma once

#include <memory>
#include <string>

#include <pybind11/pybind11.h>

#include "sparse/statistics/statistics.h"

namespace joinsum::bindings {

namespace py = pybind11;

/// An estimator whose functions are those of a Python object, and whose statistics are what these return. It lives
/// until the process ends.
std::shared_ptr<const sparse::statistics::Estimator> python_estimator(std::string name, py::object functions);

}  // namespace joinsum::bindings

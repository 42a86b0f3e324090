#pragma once

#include <memory>
#include <string>
#include <vector>

#include <torch/csrc/utils/pybind.h>

#include "base/dims.h"

namespace joinsum::bindings {

/// What Python raised: `ValueError: boom`. With Python's lock.
std::string summary_of(const py::error_already_set& error);

/// A Python function that C++ keeps, copies and drops without Python's lock, and after the interpreter's end (then it
/// is leaked, as the interpreter took its memory).
class PythonFunction {
 public:
  PythonFunction(std::string kernel, py::object function);

  /// Calls it with Python's lock; what it raises becomes a joinsum.KernelError with the kernel's name and the cause.
  at::Tensor call(const std::vector<at::Tensor>& operands) const;
  /// Calls it as a shape rule; what it raises becomes a KernelError.
  Dims shape(const std::vector<Dims>& operands) const;

 private:
  std::string kernel_;
  std::shared_ptr<py::object> function_;
};

}  // namespace joinsum::bindings

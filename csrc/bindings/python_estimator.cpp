#include "bindings/python_estimator.h"

#include <pybind11/stl.h>

#include "bindings/bindings.h"
#include "bindings/python_kernel.h"

namespace joinsum::bindings {
namespace {

using sparse::program::IndexSpace;
using sparse::program::InputTensor;
using sparse::statistics::Estimator;
using sparse::statistics::IndexSet;
using sparse::statistics::members_of;
using sparse::statistics::only;
using sparse::statistics::Statistics;
using sparse::statistics::StatisticsPtr;

/// What a Python estimator knows of a value. Planning holds no lock of Python's when it forgets it.
class PythonStatistics : public Statistics {
 public:
  PythonStatistics(IndexSet indices_, py::object value) : Statistics(indices_), value_(value.release().ptr()) {}
  PythonStatistics(const PythonStatistics&) = delete;
  PythonStatistics& operator=(const PythonStatistics&) = delete;
  ~PythonStatistics() override {
    const py::gil_scoped_acquire lock;
    Py_DECREF(value_);
  }

  py::handle value() const { return value_; }

 private:
  PyObject* value_;
};

py::handle value_of(const StatisticsPtr& statistics) {
  return static_cast<const PythonStatistics&>(*statistics).value();
}

py::list values_of(const std::vector<StatisticsPtr>& children) {
  py::list values;
  for (const StatisticsPtr& child : children) values.append(value_of(child));
  return values;
}

py::tuple indices_in(IndexSet set) { return py::tuple(py::cast(members_of(set))); }

class PythonEstimator : public Estimator {
 public:
  PythonEstimator(std::string name, py::object functions)
      : name_(std::move(name)), functions_(functions.release().ptr()) {}

  const std::string& name() const override { return name_; }

  StatisticsPtr of_tensor(const InputTensor& tensor) const override {
    const py::gil_scoped_acquire lock;
    const auto rank = static_cast<int64_t>(tensor.shape.size());
    IndexSet indices = 0;
    for (int64_t axis = 0; axis < rank; ++axis) indices |= only(axis);
    py::list degrees;
    for (const auto& degree : tensor.degrees) {
      degrees.append(py::make_tuple(degree.axes, degree.given, degree.count));
    }
    // Handles of tensors are bound without `const`.
    const auto entries = std::const_pointer_cast<sparse::tensor::Tensor>(tensor.entries);
    const py::object held = entries == nullptr ? py::object(py::none()) : py::cast(entries);
    return made(indices, "of_tensor", tensor.shape, tensor.fill, tensor.nnz, degrees, held);
  }

  StatisticsPtr relabelled(const StatisticsPtr& statistics, const std::vector<int64_t>& ids,
                           const IndexSpace& space) const override {
    const py::gil_scoped_acquire lock;
    IndexSet indices = 0;
    py::dict renamed;
    for (const int64_t old : members_of(statistics->indices)) {
      renamed[py::int_(old)] = ids[old];
      indices |= only(ids[old]);
    }
    return made(indices, "relabelled", value_of(statistics), renamed, space.sizes);
  }

  StatisticsPtr join(const std::vector<StatisticsPtr>& children, IndexSet indices,
                     const IndexSpace& space) const override {
    const py::gil_scoped_acquire lock;
    return made(indices, "join", values_of(children), indices_in(indices), space.sizes);
  }

  StatisticsPtr unite(const std::vector<StatisticsPtr>& children, IndexSet indices,
                      const IndexSpace& space) const override {
    const py::gil_scoped_acquire lock;
    return made(indices, "unite", values_of(children), indices_in(indices), space.sizes);
  }

  StatisticsPtr aggregate(const StatisticsPtr& child, IndexSet kept, const IndexSpace& space) const override {
    const py::gil_scoped_acquire lock;
    const IndexSet indices = child->indices & kept;
    return made(indices, "aggregate", value_of(child), indices_in(indices), space.sizes);
  }

  double estimate(const StatisticsPtr& statistics, const IndexSpace& space) const override {
    const py::gil_scoped_acquire lock;
    return call("estimate", value_of(statistics), space.sizes).cast<double>();
  }

  StatisticsPtr of_literal() const override {
    const py::gil_scoped_acquire lock;
    return made(0, "of_literal");
  }

 private:
  template <class... Arguments>
  py::object call(const char* function, Arguments&&... arguments) const {
    try {
      return py::handle(functions_).attr(function)(std::forward<Arguments>(arguments)...);
    } catch (py::error_already_set& error) {
      if (!error.matches(PyExc_Exception)) throw;
      throw PlanError(concatenate("estimator ", name_, ": ", function, " raised ", summary_of(error)));
    }
  }

  template <class... Arguments>
  StatisticsPtr made(IndexSet indices, const char* function, Arguments&&... arguments) const {
    return std::make_shared<PythonStatistics>(indices, call(function, std::forward<Arguments>(arguments)...));
  }

  std::string name_;
  PyObject* functions_;  ///< never dropped: the estimator outlives the interpreter
};

}  // namespace

std::shared_ptr<const Estimator> python_estimator(std::string name, py::object functions) {
  return std::make_shared<PythonEstimator>(std::move(name), std::move(functions));
}

}  // namespace joinsum::bindings

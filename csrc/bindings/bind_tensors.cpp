#include <string>
#include <unordered_map>
#include <vector>

#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include "bindings/bindings.h"

namespace joinsum::bindings {
namespace {

// A training step reads some ten attributes of each parameter and of its optimizer's state. In Python that takes a
// microsecond for each, as they are no longer in the processor's caches after the step before.

bool is_tensor(PyObject* object) {
  return PyType_IsSubtype(Py_TYPE(object), reinterpret_cast<PyTypeObject*>(THPVariableClass)) != 0;
}

/// The object as a tensor of torch. Raises TypeError for anything else.
THPVariable* tensor_of(const py::handle& object) {
  if (!is_tensor(object.ptr())) throw py::type_error("a list of tensors has another object");
  return reinterpret_cast<THPVariable*>(object.ptr());
}

template <class T>
void append(std::string& text, T number) {
  text.append(reinterpret_cast<const char*>(&number), sizeof(T));
}

/// Class, shape, dtype, device and whether a gradient is required of each tensor, as bytes that are equal for equal
/// ones.
py::bytes tensor_forms(const py::list& tensors) {
  std::string text;
  text.reserve(64 * tensors.size());
  for (const py::handle& each : tensors) {
    const at::Tensor& x = THPVariable_Unpack(tensor_of(each));
    append(text, Py_TYPE(each.ptr()));
    append(text, x.scalar_type());
    append(text, x.device().type());
    append(text, x.device().index());
    append(text, x.requires_grad());
    append(text, x.dim());
    for (const int64_t extent : x.sizes()) append(text, extent);
  }
  return py::bytes(text);
}

bool is_true(PyObject* hooks) { return hooks != nullptr && PyObject_IsTrue(hooks) == 1; }

/// The positions of tensors with hooks on their gradient, and of those with hooks after its accumulation.
std::pair<std::vector<size_t>, std::vector<size_t>> hooked(const py::list& tensors) {
  std::pair<std::vector<size_t>, std::vector<size_t>> out;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const THPVariable* x = tensor_of(tensors[i]);
    if (is_true(x->backward_hooks)) out.first.push_back(i);
    if (is_true(x->post_accumulate_grad_hooks)) out.second.push_back(i);
  }
  return out;
}

/// The entries of an optimizer's state by parameter. They are found by identity, without a call of Tensor.__hash__.
class StateEntries {
 public:
  explicit StateEntries(const py::list& states) : states_(states) {
    for (const py::handle& state : states) {
      if (by_parameter_.contains(state.ptr())) continue;
      if (PyDict_Check(state.ptr()) == 0) throw py::type_error("an optimizer's state is a dictionary");
      collect(state);
    }
  }

  /// The entries of a parameter in state `index`; null where it has none.
  PyObject* of(const py::handle& parameter, size_t index) const {
    const auto& entries = by_parameter_.at(states_[index].ptr());
    const auto found = entries.find(parameter.ptr());
    if (found == entries.end()) return nullptr;
    if (PyDict_Check(found->second) == 0) throw py::type_error("an optimizer's state of a parameter is a dictionary");
    return found->second;
  }

 private:
  void collect(const py::handle& state) {
    std::unordered_map<PyObject*, PyObject*>& entries = by_parameter_[state.ptr()];
    entries.reserve(static_cast<size_t>(PyDict_Size(state.ptr())));
    PyObject* key = nullptr;
    PyObject* value = nullptr;
    for (Py_ssize_t place = 0; PyDict_Next(state.ptr(), &place, &key, &value) != 0;) entries[key] = value;
  }

  const py::list& states_;
  std::unordered_map<PyObject*, std::unordered_map<PyObject*, PyObject*>> by_parameter_;
};

PyObject* entry(PyObject* entries, PyObject* name) {
  PyObject* found = entries == nullptr ? nullptr : PyDict_GetItemWithError(entries, name);
  if (found == nullptr && PyErr_Occurred() != nullptr) throw py::error_already_set();
  return found == Py_None ? nullptr : found;
}

/// A tensor of one float32 in the host's memory; null for any other object.
float* counter_of(PyObject* object) {
  if (object == nullptr || !is_tensor(object)) return nullptr;
  const at::Tensor& x = THPVariable_Unpack(object);
  const bool fits = x.is_cpu() && x.dim() == 0 && x.scalar_type() == at::kFloat && x.layout() == at::kStrided &&
                    x.has_storage() && x.storage().data() != nullptr;
  return fits ? x.mutable_data_ptr<float>() : nullptr;
}

/// The number of updates, or the counter of them, in the entries of a parameter; null where there is none.
PyObject* count_in(PyObject* entries) {
  static PyObject* const name = PyUnicode_InternFromString("step");
  return entry(entries, name);
}

int64_t steps_in(PyObject* step) {
  if (const float* counter = counter_of(step)) return static_cast<int64_t>(*counter);
  const auto number = py::reinterpret_steal<py::object>(PyNumber_Long(step));
  if (!number) throw py::error_already_set();
  return number.cast<int64_t>();
}

/// For each parameter its optimizer's tensors of the names in `moments`, None where there is none; how many updates it
/// has had; and the positions of those that lack a tensor. `states` are the states of all groups, and `groups` says
/// which of them a parameter's is.
py::tuple read_state(const py::list& parameters, const std::vector<size_t>& groups, const py::list& states,
                     const py::list& moments) {
  const StateEntries entries(states);
  py::list values(parameters.size());
  py::list steps(parameters.size());
  py::list lacking;
  for (size_t i = 0; i < parameters.size(); ++i) {
    PyObject* own = entries.of(parameters[i], groups[i]);
    const auto names = py::reinterpret_borrow<py::tuple>(moments[i]);
    py::tuple found(names.size());
    bool lacks = false;
    bool has_tensor = false;
    for (size_t n = 0; n < names.size(); ++n) {
      PyObject* value = entry(own, names[n].ptr());
      lacks = lacks || value == nullptr;
      has_tensor = has_tensor || (value != nullptr && is_tensor(value));
      found[n] = value == nullptr ? py::none() : py::reinterpret_borrow<py::object>(value);
    }
    PyObject* count = count_in(own);
    steps[i] = py::int_(count != nullptr ? steps_in(count) : static_cast<int64_t>(has_tensor));
    values[i] = std::move(found);
    if (lacks) lacking.append(i);
  }
  return py::make_tuple(values, steps, lacking);
}

/// Adds one to the number of updates of each parameter; returns the positions of those that have no float32 counter in
/// the host's memory, which stay as they are.
std::vector<size_t> count_steps(const py::list& parameters, const std::vector<size_t>& groups, const py::list& states) {
  const StateEntries entries(states);
  std::vector<size_t> others;
  for (size_t i = 0; i < parameters.size(); ++i) {
    PyObject* object = count_in(entries.of(parameters[i], groups[i]));
    float* counter = counter_of(object);
    if (counter == nullptr) {
      others.push_back(i);
      continue;
    }
    *counter += 1;
    const at::Tensor& x = THPVariable_Unpack(object);
    if (!x.is_inference()) x.unsafeGetTensorImpl()->bump_version();
  }
  return others;
}

}  // namespace

void bind_tensors(py::module_& module) {
  module.def("tensor_forms", &tensor_forms, py::arg("tensors"));
  module.def("hooked", &hooked, py::arg("tensors"));
  module.def("read_state", &read_state, py::arg("parameters"), py::arg("groups"), py::arg("states"),
             py::arg("moments"));
  module.def("count_steps", &count_steps, py::arg("parameters"), py::arg("groups"), py::arg("states"));
}

}  // namespace joinsum::bindings

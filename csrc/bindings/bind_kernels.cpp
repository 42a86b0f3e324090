#include <array>

#include <torch/csrc/utils/pybind.h>

#include "base/check.h"
#include "bindings/bindings.h"
#include "bindings/python_kernel.h"
#include "kernels/array.h"
#include "kernels/dense.h"
#include "kernels/facts.h"
#include "kernels/kernel.h"
#include "kernels/table.h"

namespace joinsum::bindings {
namespace {

using kernels::Array;
using kernels::Distribution;
using kernels::Facts;
using kernels::Kernel;
using kernels::Row;

const char* name_of(kernels::Form form) {
  static constexpr std::array<const char*, 7> kNames{"elementwise", "labelled", "insert_axis", "tile",
                                                     "duplicate",   "concat",   "opaque"};
  return kNames[static_cast<size_t>(form)];
}

constexpr std::array<const char*, 4> kDomains{"any", "ordered", "floating", "real"};

Array array_of(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.to(at::kCPU, at::kDouble).contiguous();
  const double* data = flat.const_data_ptr<double>();
  return {tensor.sizes().vec(), std::vector<double>(data, data + flat.numel())};
}

at::Tensor tensor_of(const Array& array) {
  at::Tensor out = at::empty(array.shape, at::kDouble);
  std::copy(array.values.begin(), array.values.end(), out.mutable_data_ptr<double>());
  return out;
}

void bind_values(py::module_& module) {
  py::class_<Kernel>(module, "Kernel")
      .def(py::init([](const std::string& text) { return Kernel::parse(text); }), py::arg("text"))
      .def("__repr__", &Kernel::text);
  py::class_<Array>(module, "Array").def(py::init(&array_of), py::arg("tensor")).def("tensor", &tensor_of);
}

using DistributionRow = std::tuple<std::string, bool, bool>;

std::vector<DistributionRow> distributions(const Facts& facts) {
  std::vector<DistributionRow> out;
  for (const Distribution& known : facts.distributes_over) out.emplace_back(known.over, known.left, known.right);
  return out;
}

void set_distributions(Facts& facts, const std::vector<DistributionRow>& rows) {
  facts.distributes_over.clear();
  for (const auto& [over, left, right] : rows) facts.distributes_over.push_back({over, left, right});
}

void bind_rows(py::module_& module) {
  py::class_<Facts>(module, "Facts")
      .def(py::init<>())
      .def_readwrite("associative", &Facts::associative)
      .def_readwrite("commutative", &Facts::commutative)
      .def_readwrite("idempotent", &Facts::idempotent)
      .def_readwrite("linear", &Facts::linear)
      .def_readwrite("moves_elements", &Facts::moves_elements)
      .def_readwrite("identity", &Facts::identity)
      .def_readwrite("annihilator", &Facts::annihilator)
      .def_property("distributes_over", &distributions, &set_distributions);
  py::class_<Row>(module, "KernelRow")
      .def_readonly("name", &Row::name)
      .def_readonly("summary", &Row::summary)
      .def_readonly("operands", &Row::operands)
      .def_readonly("parameters", &Row::parameters)
      .def_property_readonly("form", [](const Row& row) { return name_of(row.form); })
      .def_property_readonly("domain", [](const Row& row) { return domain_name(row.domain); })
      .def_readonly("flops_per_element", &Row::flops_per_element)
      .def_readonly("facts", &Row::facts)
      .def_readonly("user", &Row::user);
  module.def("kernel_rows", [] {
    std::vector<Row> rows;
    for (const Row* row : kernels::all_rows()) rows.push_back(*row);
    return rows;
  });
}

/// A row for the user's `function`: labelled with `labels`, opaque with `shape`, elementwise without both.
Row user_row(const std::string& name, const std::string& summary, int64_t operands, int64_t flops_per_element,
             const std::optional<std::string>& labels, const py::object& shape, const Facts& facts) {
  Row row{.name = name, .summary = summary, .operands = operands};
  row.flops_per_element = flops_per_element;
  row.facts = facts;
  row.user = true;
  if (labels) {
    row.form = kernels::Form::kLabelled;
    row.labels = [letters = kernels::Labels::parse(*labels)](const Kernel&) { return letters; };
  } else if (!shape.is_none()) {
    row.form = kernels::Form::kOpaque;
    row.shape = [rule = PythonFunction(name, shape)](const Kernel&, const std::vector<Dims>& shapes) {
      return rule.shape(shapes);
    };
  }
  return row;
}

/// Runs `function` on the checker's arrays; kernels of other names are those of the table.
kernels::Evaluate evaluate_with(const std::string& name, const PythonFunction& function) {
  return [name, function](const Kernel& kernel, const std::vector<Array>& operands) {
    std::vector<at::Tensor> tensors;
    for (const Array& operand : operands) tensors.push_back(tensor_of(operand));
    return array_of(kernel.name == name ? function.call(tensors) : kernels::dense(kernel, tensors, {}));
  };
}

void register_kernel(const std::string& name, const std::string& summary, int64_t operands, int64_t flops_per_element,
                     const std::optional<std::string>& labels, const py::object& shape, const Facts& facts,
                     const py::object& function) {
  Row row = user_row(name, summary, operands, flops_per_element, labels, shape, facts);
  const PythonFunction called(name, function);
  const py::gil_scoped_release unlocked;
  kernels::register_row(row);
  try {
    kernels::check_facts(row, evaluate_with(name, called));
  } catch (...) {
    kernels::unregister_row(name);
    throw;
  }
  kernels::register_dense(name, [called](const Kernel&, const std::vector<at::Tensor>& tensors,
                                         const kernels::Scalars&) { return called.call(tensors); });
}

void unregister_kernel(const std::string& name) {
  kernels::unregister_row(name);
  kernels::register_dense(name, {});
}

}  // namespace

const char* domain_name(kernels::Domain domain) { return kDomains[static_cast<size_t>(domain)]; }

kernels::Domain domain_named(const std::string& name) {
  for (size_t i = 0; i < kDomains.size(); ++i) {
    if (name == kDomains[i]) return static_cast<kernels::Domain>(i);
  }
  throw PlanError("kernel: no such domain: domain=" + name + ", known=any, ordered, floating, real");
}

void bind_kernels(py::module_& module) {
  bind_values(module);
  bind_rows(module);
  module.def("register_kernel", &register_kernel, py::arg("name"), py::arg("summary"), py::arg("operands"),
             py::arg("flops_per_element"), py::arg("labels"), py::arg("shape"), py::arg("facts"), py::arg("function"));
  module.def("unregister_kernel", &unregister_kernel, py::arg("name"), WithoutGil());
}

}  // namespace joinsum::bindings

#include <array>

#include <torch/csrc/utils/pybind.h>

#include "base/check.h"
#include "bindings/bindings.h"
#include "bindings/python_kernel.h"
#include "kernels/call/call.h"
#include "kernels/dense/dense.h"
#include "kernels/reference/array.h"
#include "kernels/reference/facts.h"
#include "kernels/table/kernel.h"
#include "kernels/table/table.h"

namespace joinsum::bindings {
namespace {

using kernels::call::Call;
using kernels::reference::Array;
using kernels::table::Distribution;
using kernels::table::Facts;
using kernels::table::Kernel;
using kernels::table::Row;

const char* name_of(kernels::table::Form form) {
  static constexpr std::array<const char*, 8> kNames{"elementwise", "labelled",  "insert_axis", "embed",
                                                     "tile",        "duplicate", "concat",      "opaque"};
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

/// Numbers, labels, and the names of run-time scalars as plans print them.
std::vector<std::variant<int64_t, double, std::string>> parameters_of(const Kernel& kernel) {
  std::vector<std::variant<int64_t, double, std::string>> out;
  for (const kernels::table::Parameter& parameter : kernel.parameters) {
    std::visit(
        [&](const auto& value) {
          if constexpr (std::is_same_v<std::decay_t<decltype(value)>, kernels::table::ScalarName>) {
            out.emplace_back("$" + value.name);
          } else {
            out.emplace_back(value);
          }
        },
        parameter);
  }
  return out;
}

at::Tensor run_kernel(const Kernel& kernel, const std::vector<at::Tensor>& operands) {
  return kernels::dense::run(kernel, operands);
}

at::Tensor reduce_axes(const Kernel& kernel, const at::Tensor& x, const Dims& axes) {
  JOINSUM_KERNEL_CHECK(kernels::dense::reduces_axes(kernel), kernel.name,
                       ": no axes are reduced by it: kernel=", kernel.text());
  return kernels::dense::reduce_axes(kernel.name, x, axes);
}

Call parse_call(const std::string& text) {
  Scanner scanner(text);
  Call call = Call::parse(scanner);
  if (!scanner.at_end()) scanner.fail("expected the end of the call");
  return call;
}

void bind_values(py::module_& module) {
  py::class_<Kernel>(module, "Kernel")
      .def(py::init([](const std::string& text) { return Kernel::parse(text); }), py::arg("text"))
      .def_readonly("name", &Kernel::name)
      .def_property_readonly("parameters", &parameters_of)
      .def_readonly("epilogue", &Kernel::epilogue)
      .def("reorders", &kernels::table::reorders, py::arg("reduction"))
      .def("run", &run_kernel, py::arg("operands"), WithoutGil())
      .def("reduce", &reduce_axes, py::arg("x"), py::arg("axes"), WithoutGil())
      .def("__repr__", &Kernel::text);
  py::class_<Call>(module, "Call")
      .def_static("parse", &parse_call, py::arg("text"))
      .def_readonly("output", &Call::output)
      .def_readonly("function", &Call::function)
      .def_readonly("operands", &Call::operands)
      .def_property_readonly("result", [](const Call& call) { return call.result().letters; })
      .def("__repr__", &Call::text);
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
    for (const Row* row : kernels::table::all_rows()) rows.push_back(*row);
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
    row.form = kernels::table::Form::kLabelled;
    row.labels = [letters = kernels::table::Subscripts::parse(*labels)](const Kernel&) { return letters; };
  } else if (!shape.is_none()) {
    row.form = kernels::table::Form::kOpaque;
    row.shape = [rule = PythonFunction(name, shape)](const Kernel&, const std::vector<Dims>& shapes) {
      return rule.shape(shapes);
    };
  }
  return row;
}

/// Runs `function` on the checker's arrays; kernels of other names are those of the table.
kernels::reference::Evaluate evaluate_with(const std::string& name, const PythonFunction& function) {
  return [name, function](const Kernel& kernel, const std::vector<Array>& operands) {
    std::vector<at::Tensor> tensors;
    for (const Array& operand : operands) tensors.push_back(tensor_of(operand));
    return array_of(kernel.name == name ? function.call(tensors) : kernels::dense::run(kernel, tensors, {}));
  };
}

void register_kernel(const std::string& name, const std::string& summary, int64_t operands, int64_t flops_per_element,
                     const std::optional<std::string>& labels, const py::object& shape, const Facts& facts,
                     const py::object& function) {
  Row row = user_row(name, summary, operands, flops_per_element, labels, shape, facts);
  const PythonFunction called(name, function);
  const py::gil_scoped_release unlocked;
  kernels::table::register_row(row);
  try {
    kernels::reference::check_facts(row, evaluate_with(name, called));
  } catch (...) {
    kernels::table::unregister_row(name);
    throw;
  }
  kernels::dense::register_function(name, [called](const Kernel&, const std::vector<at::Tensor>& tensors,
                                                   const kernels::table::Scalars&) { return called.call(tensors); });
}

void unregister_kernel(const std::string& name) {
  kernels::table::unregister_row(name);
  kernels::dense::register_function(name, {});
}

}  // namespace

const char* domain_name(Domain domain) { return kDomains[static_cast<size_t>(domain)]; }

Domain domain_named(const std::string& name) {
  for (size_t i = 0; i < kDomains.size(); ++i) {
    if (name == kDomains[i]) return static_cast<Domain>(i);
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

#include <array>

#include <torch/csrc/utils/pybind.h>

#include "base/check.h"
#include "bindings/bindings.h"
#include "bindings/python_kernel.h"
#include "kernels/call/call.h"
#include "kernels/dense/dense.h"
#include "kernels/products/openblas.h"
#include "kernels/reference/array.h"
#include "kernels/reference/facts.h"
#include "kernels/table/kernel.h"
#include "kernels/table/table.h"
#include "kernels/torch_call/torch_call.h"

namespace joinsum::bindings {
namespace {

using kernels::call::Call;
using kernels::call::CallArgument;
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

/// A result as Python gives it: dtype, and the letters of each axis in which the operator gives it.
using ResultValue = std::pair<std::string, std::vector<std::string>>;
using Undecomposed = std::pair<Dims, Call>;

Call make_call(int64_t output, std::string function, std::vector<std::string> operands,
               const std::vector<ResultValue>& results, std::vector<CallArgument> arguments, std::string undivided,
               std::string same, std::map<char, std::string> reduce, const std::map<char, int64_t>& extents,
               std::vector<std::pair<double, std::string>> flops, const std::optional<Undecomposed>& undecomposed,
               std::optional<int64_t> entries, const std::vector<std::string>& stored) {
  Call call{output, std::move(function), std::move(operands), {}, std::move(arguments), std::move(undivided)};
  JOINSUM_USER_CHECK(stored.empty() || stored.size() == results.size(),
                     "Call: stored has letters for each result: stored=", stored, ", results=", results.size());
  for (const auto& [dtype, groups] : results) {
    auto& result = call.results.emplace_back(kernels::call::CallResult{"", dtype_named(dtype), groups});
    if (stored.empty()) {
      for (const std::string& group : groups) result.letters += group;
    } else {
      result.letters = stored[call.results.size() - 1];
    }
    result.entries = entries;
  }
  call.same = std::move(same);
  call.reduce = std::move(reduce);
  for (const auto& [letter, extent] : extents) call.extents[letter] = {extent};
  call.flops = std::move(flops);
  if (undecomposed) {
    call.undecomposed_operands = undecomposed->first;
    call.undecomposed = {undecomposed->second};
  }
  check(call);
  return call;
}

std::optional<Undecomposed> undecomposed_of(const Call& call) {
  if (call.undecomposed.empty()) return std::nullopt;
  return Undecomposed{call.undecomposed_operands, call.undecomposed.front()};
}

at::Tensor run_call(const Call& call, const std::vector<at::Tensor>& operands,
                    const kernels::torch_call::Shard& shard) {
  return kernels::torch_call::run(call, operands, shard)[call.output];
}

/// Makes arguments of a kind from their value.
template <class Value, class Member>
auto argument_of(CallArgument::Kind kind, Member CallArgument::* member) {
  return [kind, member](Value value) {
    CallArgument argument{.kind = kind};
    argument.*member = std::move(value);
    return argument;
  };
}

CallArgument operand_argument(int64_t operand, std::vector<std::string> groups) {
  return {.kind = CallArgument::Kind::kOperand, .integer = operand, .groups = std::move(groups)};
}

CallArgument named(CallArgument argument, std::string name) {
  argument.name = std::move(name);
  return argument;
}

void bind_call_argument(py::module_& module) {
  using Kind = CallArgument::Kind;
  const auto value = py::arg("value").noconvert();
  py::class_<CallArgument>(module, "CallArgument")
      .def(py::init([](const py::none&) { return CallArgument(); }), value)
      .def(py::init(argument_of<bool>(Kind::kBool, &CallArgument::integer)), value)
      .def(py::init(argument_of<int64_t>(Kind::kInteger, &CallArgument::integer)), value)
      .def(py::init(argument_of<double>(Kind::kNumber, &CallArgument::number)), value)
      .def(py::init(argument_of<std::string>(Kind::kText, &CallArgument::text)), value)
      .def(py::init(argument_of<std::vector<CallArgument>>(Kind::kList, &CallArgument::items)), value)
      .def_static("dtype", argument_of<std::string>(Kind::kDType, &CallArgument::text), py::arg("name"))
      .def_static("operand", &operand_argument, py::arg("operand"), py::arg("groups"))
      .def_static("extent", argument_of<std::string>(Kind::kExtent, &CallArgument::text), py::arg("letters"))
      .def_static("offset", argument_of<std::string>(Kind::kOffset, &CallArgument::text), py::arg("letter"))
      .def("named", &named, py::arg("name"));
}

void bind_call(py::module_& module) {
  py::class_<Call>(module, "Call")
      .def(py::init(&make_call), py::kw_only(), py::arg("output") = 0, py::arg("function"), py::arg("operands"),
           py::arg("results"), py::arg("arguments"), py::arg("undivided") = "", py::arg("same") = "",
           py::arg("reduce") = std::map<char, std::string>{}, py::arg("extents") = std::map<char, int64_t>{},
           py::arg("flops") = std::vector<std::pair<double, std::string>>{}, py::arg("undecomposed") = std::nullopt,
           py::arg("entries") = std::nullopt, py::arg("stored") = std::vector<std::string>())
      .def_static("parse", &parse_call, py::arg("text"))
      .def_readonly("output", &Call::output)
      .def_readonly("function", &Call::function)
      .def_readonly("operands", &Call::operands)
      .def_property_readonly("result", [](const Call& call) { return call.result().letters; })
      .def_readonly("undivided", &Call::undivided)
      .def_readonly("same", &Call::same)
      .def_readonly("reduce", &Call::reduce)
      .def_property_readonly("undecomposed", &undecomposed_of)
      .def("extents", &kernels::call::extents_of, py::arg("shapes"))
      .def("run", &run_call, py::arg("operands"), py::arg("shard") = kernels::torch_call::Shard{}, WithoutGil())
      .def("__repr__", &Call::text);
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
      .def_readwrite("additive", &Facts::additive)
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
  module.def("set_openblas", &kernels::products::set_openblas, py::arg("path"));
  module.def("openblas_suits_processor", &kernels::products::openblas_suits_processor);
  module.def("openblas_is_faster", &kernels::products::openblas_is_faster);
  bind_values(module);
  bind_call_argument(module);
  bind_call(module);
  bind_rows(module);
  module.def("register_kernel", &register_kernel, py::arg("name"), py::arg("summary"), py::arg("operands"),
             py::arg("flops_per_element"), py::arg("labels"), py::arg("shape"), py::arg("facts"), py::arg("function"));
  module.def("unregister_kernel", &unregister_kernel, py::arg("name"), WithoutGil());
}

}  // namespace joinsum::bindings

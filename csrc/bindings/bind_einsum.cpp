#include <pybind11/operators.h>

#include "bindings/bindings.h"
#include "bindings/einsum_node.h"
#include "bindings/tra_node.h"
#include "einsum/binary.h"
#include "einsum/equation.h"
#include "einsum/gradient.h"
#include "einsum/interpret.h"
#include "einsum/lower.h"
#include "einsum/nodes.h"
#include "einsum/text.h"
#include "kernels/expression.h"

namespace joinsum::bindings {
namespace {

using NodeHandle = EinsumNodeHandle;

NodeHandle input(std::string name, const std::string& dtype, Dims extents) {
  return {einsum::make_input(std::move(name), {dtype_named(dtype), std::move(extents)})};
}

NodeHandle vertex(const std::vector<NodeHandle>& inputs, std::vector<einsum::Labels> operands, einsum::Labels result,
                  kernels::Kernel join, kernels::Kernel aggregate, einsum::Extents extents) {
  std::vector<einsum::NodePtr> nodes;
  for (const NodeHandle& handle : inputs) nodes.push_back(handle.node);
  for (const einsum::Labels& labels : operands) {
    for (const std::string& label : labels) einsum::check_label(label);
  }
  for (const std::string& label : result) einsum::check_label(label);
  return {einsum::make(
      einsum::Einsum{std::move(operands), std::move(result), std::move(join), std::move(aggregate), std::move(extents)},
      std::move(nodes))};
}

void bind_nodes(py::module_& module) {
  py::class_<NodeHandle>(module, "EinsumNode")
      .def_property_readonly("dtype", [](const NodeHandle& handle) { return name_of(handle.node->type().dtype); })
      .def_property_readonly("extents", [](const NodeHandle& handle) { return handle.node->type().extents; });
  module.def("einsum_input", &input, py::arg("name"), py::arg("dtype"), py::arg("extents"), WithoutGil());
  module.def("einsum_vertex", &vertex, py::arg("inputs"), py::arg("operands"), py::arg("result"), py::arg("join"),
             py::arg("aggregate"), py::arg("extents"), WithoutGil());
}

using Shape = std::pair<std::string, Dims>;

Shape shape_of(const einsum::TensorType& type) { return {name_of(type.dtype), type.extents}; }

std::vector<std::pair<std::string, Shape>> inputs_of(const einsum::Plan& plan) {
  std::vector<std::pair<std::string, Shape>> out;
  for (const auto& node : plan.inputs()) out.emplace_back(node->as<einsum::Input>()->name, shape_of(node->type()));
  return out;
}

std::vector<std::pair<std::string, Shape>> outputs_of(const einsum::Plan& plan) {
  std::vector<std::pair<std::string, Shape>> out;
  for (const auto& output : plan.outputs()) out.emplace_back(output.name, shape_of(output.node->type()));
  return out;
}

/// A vertex as Python reads it: name, names of its inputs, labels, kernels, extents of labels that only the result has.
using Vertex = std::tuple<std::string, std::vector<std::string>, std::vector<einsum::Labels>, einsum::Labels,
                          std::string, std::string, einsum::Extents>;

std::vector<Vertex> vertices_of(const einsum::Plan& plan) {
  const auto names = einsum::node_names(plan);
  std::vector<Vertex> out;
  for (const auto& node : plan.order()) {
    const auto* op = node->as<einsum::Einsum>();
    if (op == nullptr) continue;
    std::vector<std::string> inputs;
    for (const auto& each : node->inputs()) inputs.push_back(names.at(each.get()));
    out.emplace_back(names.at(node.get()), std::move(inputs), op->operands, op->result, op->join.text(),
                     op->aggregate.text(), op->extents);
  }
  return out;
}

/// Names of the nodes that the outputs are.
std::vector<std::string> output_nodes(const einsum::Plan& plan) {
  const auto names = einsum::node_names(plan);
  std::vector<std::string> out;
  for (const auto& output : plan.outputs()) out.push_back(names.at(output.node.get()));
  return out;
}

einsum::Plan make_plan(const std::vector<std::pair<std::string, NodeHandle>>& outputs) {
  std::vector<einsum::Plan::Output> made;
  for (const auto& [name, handle] : outputs) made.push_back({name, handle.node, std::nullopt});
  return einsum::Plan::make(std::move(made));
}

einsum::Plan binary(const einsum::Plan& plan, const std::map<std::string, einsum::Path>& paths) {
  return einsum::binary(plan, paths);
}

tra::Plan lower(const einsum::Plan& plan, const std::map<std::string, RelationType>& inputs) {
  return einsum::lower(plan, inputs);
}

std::vector<TraNodeHandle> lower_onto(const einsum::Plan& plan, const std::map<std::string, TraNodeHandle>& inputs) {
  std::map<std::string, tra::NodePtr> nodes;
  for (const auto& [name, handle] : inputs) nodes[name] = handle.node;
  std::vector<TraNodeHandle> out;
  for (const tra::NodePtr& node : einsum::lower(plan, nodes)) out.push_back({node});
  return out;
}

void bind_plan(py::module_& module) {
  py::class_<einsum::Plan>(module, "EinsumPlan")
      .def_static("make", &make_plan, py::arg("outputs"), WithoutGil())
      .def_static("parse", &einsum::parse, py::arg("text"), WithoutGil())
      .def_property_readonly("inputs", &inputs_of)
      .def_property_readonly("outputs", &outputs_of)
      .def_property_readonly("vertices", &vertices_of)
      .def_property_readonly("output_nodes", &output_nodes)
      .def("binary", &binary, py::arg("paths"), WithoutGil())
      .def("gradient", &einsum::gradient, py::arg("of"), py::arg("paths") = std::map<std::string, einsum::Path>{},
           WithoutGil())
      .def("differentiable_outputs", &einsum::differentiable_outputs, py::arg("of"), WithoutGil())
      .def("even_cuts", &einsum::even_cuts, py::arg("sites"), WithoutGil())
      .def("lower", &lower, py::arg("inputs"), WithoutGil())
      .def("lower_onto", &lower_onto, py::arg("inputs"), WithoutGil())
      .def("interpret", &einsum::interpret, py::arg("inputs"), py::arg("scalars"), WithoutGil())
      .def("__str__", &einsum::Plan::text, WithoutGil())
      .def("__hash__", &einsum::Plan::hash, WithoutGil())
      .def(py::self == py::self);
}

}  // namespace

void bind_einsum(py::module_& module) {
  bind_nodes(module);
  bind_plan(module);
  module.def(
      "parse_equation",
      [](const std::string& text, const std::vector<Dims>& shapes, const einsum::Extents& extents) {
        const einsum::Equation equation = einsum::parse_equation(text, shapes, extents);
        return std::tuple(equation.operands, equation.result, equation.extents);
      },
      py::arg("text"), py::arg("shapes"), py::arg("extents") = einsum::Extents{});
  module.def(
      "expression_kernel",
      [](const std::string& text, int64_t operands) {
        return kernels::expression_kernel(kernels::Expression::parse(text, operands), operands).text();
      },
      py::arg("text"), py::arg("operands"));
}

}  // namespace joinsum::bindings

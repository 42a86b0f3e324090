#include <pybind11/operators.h>

#include "bindings/bindings.h"
#include "bindings/einsum_node.h"
#include "bindings/tra_node.h"
#include "einsum/binary.h"
#include "einsum/equation.h"
#include "einsum/gradient.h"
#include "einsum/graph.h"
#include "einsum/interpret.h"
#include "einsum/json.h"
#include "einsum/lower.h"
#include "einsum/named_vertex.h"
#include "einsum/nodes.h"
#include "einsum/text.h"

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

NodeHandle call(const std::vector<NodeHandle>& inputs, const std::string& text) {
  std::vector<einsum::NodePtr> nodes;
  for (const NodeHandle& handle : inputs) nodes.push_back(handle.node);
  Scanner scanner(text);
  einsum::Call parsed = einsum::Call::parse(scanner);
  if (!scanner.at_end()) scanner.fail("expected the end of the call");
  return {einsum::make(std::move(parsed), std::move(nodes))};
}

NodeHandle named_vertex(const std::string& who, const std::vector<NodeHandle>& inputs,
                        const einsum::NamedVertex& vertex, const std::string& positions) {
  std::vector<einsum::NodePtr> nodes;
  for (const NodeHandle& handle : inputs) nodes.push_back(handle.node);
  return {einsum::make_named(who, nodes, vertex, positions)};
}

void bind_nodes(py::module_& module) {
  py::class_<NodeHandle>(module, "EinsumNode")
      .def_property_readonly("dtype", [](const NodeHandle& handle) { return name_of(handle.node->type().dtype); })
      .def_property_readonly("extents", [](const NodeHandle& handle) { return handle.node->type().extents; });
  module.def("einsum_call", &call, py::arg("inputs"), py::arg("call"), WithoutGil());
  module.def("einsum_input", &input, py::arg("name"), py::arg("dtype"), py::arg("extents"), WithoutGil());
  module.def("einsum_vertex", &vertex, py::arg("inputs"), py::arg("operands"), py::arg("result"), py::arg("join"),
             py::arg("aggregate"), py::arg("extents"), WithoutGil());
  py::class_<einsum::NamedVertex>(module, "NamedVertex")
      .def(py::init<std::string, std::string, std::vector<einsum::Labels>, einsum::Labels, einsum::Extents,
                    einsum::Labels>(),
           py::arg("join"), py::arg("aggregate"), py::arg("operands"), py::arg("result"), py::arg("extents"),
           py::arg("order"));
  module.def("aggregation_names", &einsum::aggregation_names);
  module.def("named_einsum_vertex", &named_vertex, py::arg("who"), py::arg("inputs"), py::arg("vertex"),
             py::arg("positions"), WithoutGil());
}

/// An operation of a graph as Python has it: name, inputs, labels of operands and result, extents, join, aggregation.
using GraphRow = std::tuple<std::string, std::vector<std::string>, std::vector<einsum::Labels>, einsum::Labels,
                            einsum::Extents, std::string, std::optional<std::string>>;
using GraphInput = std::tuple<std::string, std::string, Dims>;
using GraphParts =
    std::tuple<std::vector<GraphInput>, std::vector<GraphRow>, std::vector<std::pair<std::string, std::string>>>;

einsum::Graph graph_of_parts(const GraphParts& parts) {
  einsum::Graph graph;
  for (const auto& [name, dtype, extents] : std::get<0>(parts)) {
    graph.inputs.emplace_back(name, einsum::TensorType{dtype_named(dtype), extents});
  }
  for (const auto& [name, inputs, in_labels, out_labels, extents, join, aggregate] : std::get<1>(parts)) {
    graph.operations.push_back({name, inputs, in_labels, out_labels, extents, join, aggregate});
  }
  graph.outputs = std::get<2>(parts);
  return graph;
}

GraphParts parts_of(const einsum::Graph& graph) {
  GraphParts parts;
  for (const auto& [name, type] : graph.inputs) {
    std::get<0>(parts).emplace_back(name, name_of(type.dtype), type.extents);
  }
  for (const einsum::GraphOperation& op : graph.operations) {
    std::get<1>(parts).emplace_back(op.name, op.inputs, op.in_labels, op.out_labels, op.extents, op.join, op.aggregate);
  }
  std::get<2>(parts) = graph.outputs;
  return parts;
}

void bind_graph(py::module_& module) {
  py::class_<einsum::Graph>(module, "EinsumGraph")
      .def(py::init(&graph_of_parts), py::arg("parts"))
      .def_static(
          "read_json",
          [](const std::string& text, std::string who, std::string where, bool diagonals) {
            return einsum::read_json(text, {std::move(who), std::move(where), diagonals});
          },
          py::arg("text"), py::arg("who"), py::arg("where"), py::arg("diagonals"), WithoutGil())
      .def_static("of_plan", &einsum::graph_of, py::arg("plan"), WithoutGil())
      .def_property_readonly("parts", &parts_of)
      .def("write_json", &einsum::write_json, WithoutGil())
      .def("plan", &einsum::plan_of, py::arg("who") = "json", WithoutGil());
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

/// A vertex or a call as Python reads it: name, operator, names of its inputs, labels.
using Use = std::tuple<std::string, std::string, std::vector<std::string>, std::vector<einsum::Labels>, einsum::Labels>;

einsum::Labels letters_of(const std::string& letters) {
  einsum::Labels out;
  for (const char letter : letters) out.emplace_back(1, letter);
  return out;
}

std::vector<Use> uses_of(const einsum::Plan& plan) {
  const auto names = einsum::node_names(plan);
  std::vector<Use> out;
  for (const auto& node : plan.order()) {
    std::vector<std::string> inputs;
    for (const auto& each : node->inputs()) inputs.push_back(names.at(each.get()));
    if (const auto* op = node->as<einsum::Einsum>()) {
      out.emplace_back(names.at(node.get()), "einsum", std::move(inputs), op->operands, op->result);
    } else if (const auto* call = node->as<einsum::Call>()) {
      std::vector<einsum::Labels> operands;
      for (const std::string& letters : call->operands) operands.push_back(letters_of(letters));
      out.emplace_back(names.at(node.get()), call->function, std::move(inputs), std::move(operands),
                       letters_of(call->result().letters));
    }
  }
  return out;
}

std::map<std::string, Shape> shapes_of(const einsum::Plan& plan) {
  const auto names = einsum::node_names(plan);
  std::map<std::string, Shape> out;
  for (const auto& node : plan.order()) out.emplace(names.at(node.get()), shape_of(node->type()));
  return out;
}

/// Names of the nodes that the outputs are.
std::vector<std::string> output_nodes(const einsum::Plan& plan) {
  const auto names = einsum::node_names(plan);
  std::vector<std::string> out;
  for (const auto& output : plan.outputs()) out.push_back(names.at(output.node.get()));
  return out;
}

einsum::Plan make_plan(const std::vector<std::pair<std::string, NodeHandle>>& outputs,
                       const std::map<std::string, std::string>& ties) {
  std::vector<einsum::Plan::Output> made;
  for (const auto& [name, handle] : outputs) {
    const auto tie = ties.find(name);
    made.push_back({name, handle.node, tie == ties.end() ? std::nullopt : std::optional(tie->second)});
  }
  return einsum::Plan::make(std::move(made));
}

/// Inputs that outputs are tied to, by the outputs' names.
std::map<std::string, std::string> ties_of(const einsum::Plan& plan) {
  std::map<std::string, std::string> out;
  for (const auto& output : plan.outputs()) {
    if (output.tied_input) out.emplace(output.name, *output.tied_input);
  }
  return out;
}

einsum::Plan binary(const einsum::Plan& plan, const std::map<std::string, einsum::Path>& paths) {
  return einsum::binary(plan, paths);
}

einsum::Plan binary_where_nans_stay(const einsum::Plan& plan) {
  std::unordered_map<const einsum::Node*, einsum::NodePtr> made;
  return einsum::binary(plan, {}, made, einsum::Folding::kWhereNaNsStay);
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
      .def_static("make", &make_plan, py::arg("outputs"), py::arg("ties") = std::map<std::string, std::string>{},
                  WithoutGil())
      .def_static("parse", &einsum::parse, py::arg("text"), WithoutGil())
      .def_property_readonly("inputs", &inputs_of)
      .def_property_readonly("outputs", &outputs_of)
      .def_property_readonly("vertices", &vertices_of)
      .def_property_readonly("ties", &ties_of)
      .def_property_readonly("uses", &uses_of)
      .def_property_readonly("shapes", &shapes_of)
      .def_property_readonly("output_nodes", &output_nodes)
      .def("binary", &binary, py::arg("paths"), WithoutGil())
      .def("binary_where_nans_stay", &binary_where_nans_stay, WithoutGil())
      .def_property_readonly("may_lose_nans", &einsum::may_lose_nans)
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
  bind_graph(module);
  module.def(
      "parse_equation",
      [](const std::string& text, const std::vector<Dims>& shapes, const einsum::Extents& extents) {
        const einsum::Equation equation = einsum::parse_equation(text, shapes, extents);
        return std::tuple(equation.operands, equation.result, equation.extents);
      },
      py::arg("text"), py::arg("shapes"), py::arg("extents") = einsum::Extents{});
}

}  // namespace joinsum::bindings

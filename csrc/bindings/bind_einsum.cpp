#include "bindings/plans.h"
#include "einsum/balanced_cuts.h"
#include "einsum/gradients/gradient.h"
#include "einsum/interpret.h"
#include "einsum/json/graph.h"
#include "einsum/json/json.h"
#include "einsum/lower.h"
#include "einsum/nodes.h"
#include "einsum/notation/equation.h"
#include "einsum/notation/named_vertex.h"
#include "einsum/text.h"
#include "einsum/transforms/binary.h"
#include "einsum/transforms/undecomposed_calls.h"
#include "tra/text.h"

namespace joinsum::bindings {
namespace {

using Handle = EinsumNodeHandle;

Handle input(std::string name, const std::string& dtype, Dims extents, std::optional<int64_t> entries) {
  return {einsum::make_input(std::move(name), {dtype_named(dtype), std::move(extents), entries})};
}

/// Estimated entries of the inputs that are sparse.
std::map<std::string, int64_t> sparse_inputs(const einsum::Plan& plan) {
  std::map<std::string, int64_t> out;
  for (const einsum::NodePtr& node : plan.inputs()) {
    if (const auto& entries = node->type().entries) out.emplace(node->as<einsum::Input>()->name, *entries);
  }
  return out;
}

Handle vertex(const std::vector<Handle>& inputs, std::vector<einsum::Labels> operands, einsum::Labels result,
              kernels::table::Kernel join, kernels::table::Kernel aggregate, einsum::Extents extents) {
  for (const einsum::Labels& labels : operands) {
    for (const std::string& label : labels) einsum::check_label(label);
  }
  for (const std::string& label : result) einsum::check_label(label);
  return {einsum::make(
      einsum::Einsum{std::move(operands), std::move(result), std::move(join), std::move(aggregate), std::move(extents)},
      nodes_of(inputs))};
}

Handle call(const std::vector<Handle>& inputs, einsum::Call operation) {
  return {einsum::make(std::move(operation), nodes_of(inputs))};
}

Handle named_vertex(const std::string& who, const std::vector<Handle>& inputs,
                    const einsum::notation::NamedVertex& vertex, const std::string& positions) {
  return {einsum::notation::make_named(who, nodes_of(inputs), vertex, positions)};
}

std::vector<Handle> inputs_of_node(const Handle& handle) {
  std::vector<Handle> out;
  for (const einsum::NodePtr& input : handle.node->inputs()) out.push_back({input});
  return out;
}

void bind_nodes(py::module_& module) {
  py::class_<einsum::Einsum>(module, "Einsum")
      .def_readonly("operands", &einsum::Einsum::operands)
      .def_readonly("result", &einsum::Einsum::result)
      .def_readonly("join", &einsum::Einsum::join)
      .def_readonly("aggregate", &einsum::Einsum::aggregate);
  py::class_<Handle>(module, "EinsumNode")
      .def_property_readonly("dtype", [](const Handle& handle) { return name_of(handle.node->type().dtype); })
      .def_property_readonly("extents", [](const Handle& handle) { return handle.node->type().extents; })
      .def_property_readonly("entries", [](const Handle& handle) { return handle.node->type().entries; })
      .def_property_readonly("inputs", &inputs_of_node)
      .def_property_readonly("einsum", [](const Handle& handle) { return handle.node->as<einsum::Einsum>(); })
      .def_property_readonly("call", [](const Handle& handle) { return handle.node->as<einsum::Call>(); })
      .def(
          "__eq__", [](const Handle& a, const Handle& b) { return a.node == b.node; }, py::is_operator())
      .def("__hash__", [](const Handle& handle) { return std::hash<einsum::NodePtr>()(handle.node); });
  module.def("einsum_call", &call, py::arg("inputs"), py::arg("call"), WithoutGil());
  module.def("einsum_input", &input, py::arg("name"), py::arg("dtype"), py::arg("extents"),
             py::arg("entries") = std::nullopt, WithoutGil());
  module.def("einsum_vertex", &vertex, py::arg("inputs"), py::arg("operands"), py::arg("result"), py::arg("join"),
             py::arg("aggregate"), py::arg("extents"), WithoutGil());
  py::class_<einsum::notation::NamedVertex>(module, "NamedVertex")
      .def(py::init<std::string, std::string, std::vector<einsum::Labels>, einsum::Labels, einsum::Extents,
                    einsum::Labels>(),
           py::arg("join"), py::arg("aggregate"), py::arg("operands"), py::arg("result"), py::arg("extents"),
           py::arg("order"));
  module.def("aggregation_names", &einsum::notation::aggregation_names);
  module.def("named_einsum_vertex", &named_vertex, py::arg("who"), py::arg("inputs"), py::arg("vertex"),
             py::arg("positions"), WithoutGil());
}

using Shape = std::pair<std::string, Dims>;

Shape shape_of(const einsum::TensorType& type) { return {name_of(type.dtype), type.extents}; }

py::dict json_inputs(const einsum::json::JsonGraph& graph) {
  py::dict out;
  for (const auto& [name, type] : graph.inputs) out[py::str(name)] = py::tuple(py::cast(type.extents));
  return out;
}

py::dict json_outputs(const einsum::json::JsonGraph& graph) {
  py::dict out;
  for (const auto& [name, of] : graph.outputs) out[py::str(name)] = of;
  return out;
}

std::pair<einsum::Plan, std::map<std::string, Handle>> named_plan(const einsum::json::JsonGraph& graph,
                                                                  const std::string& who) {
  auto [plan, values] = einsum::json::named_plan_of(graph, who);
  std::map<std::string, Handle> handles;
  for (auto& [name, node] : values) handles[name] = {node};
  return {std::move(plan), std::move(handles)};
}

void bind_json(py::module_& module) {
  py::class_<einsum::json::JsonOperation>(module, "JsonOperation")
      .def_readonly("name", &einsum::json::JsonOperation::name)
      .def_readonly("inputs", &einsum::json::JsonOperation::inputs)
      .def_readonly("in_labels", &einsum::json::JsonOperation::in_labels)
      .def_readonly("out_labels", &einsum::json::JsonOperation::out_labels)
      .def_readonly("extents", &einsum::json::JsonOperation::extents)
      .def_readonly("join", &einsum::json::JsonOperation::join)
      .def_readonly("aggregate", &einsum::json::JsonOperation::aggregate)
      .def_property_readonly("labels", &einsum::json::all_labels);
  py::class_<einsum::json::JsonGraph>(module, "JsonGraph")
      .def_static(
          "read",
          [](const std::string& text, std::string who, std::string where, bool diagonals) {
            return einsum::json::read(text, {std::move(who), std::move(where), diagonals});
          },
          py::arg("text"), py::arg("who"), py::arg("where"), py::arg("diagonals"), WithoutGil())
      .def_static("of_plan", &einsum::json::graph_of, py::arg("plan"), WithoutGil())
      .def_property_readonly("inputs", &json_inputs)
      .def_property_readonly("operations", [](const einsum::json::JsonGraph& graph) { return graph.operations; })
      .def_property_readonly("outputs", &json_outputs)
      .def("text", &einsum::json::write, WithoutGil())
      .def("plan", &named_plan, py::arg("who"), WithoutGil())
      .def(py::self == py::self);
}

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

/// The nodes by name, in an order in which each follows its inputs.
std::vector<std::pair<std::string, Handle>> nodes_of(const einsum::Plan& plan) {
  const auto names = einsum::node_names(plan);
  std::vector<std::pair<std::string, Handle>> out;
  for (const auto& node : plan.order()) out.emplace_back(names.at(node.get()), Handle{node});
  return out;
}

einsum::Plan make_plan(const std::vector<std::pair<std::string, Handle>>& outputs,
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

einsum::Plan binary(const einsum::Plan& plan, const std::map<std::string, einsum::transforms::Path>& paths) {
  return einsum::transforms::binary(plan, paths);
}

einsum::Plan binary_where_nans_stay(const einsum::Plan& plan) {
  std::unordered_map<const einsum::Node*, einsum::NodePtr> made;
  return einsum::transforms::binary(plan, {}, made, einsum::transforms::AggregationStep::kWhereNaNsStay);
}

tra::Plan lower(const einsum::Plan& plan, const std::map<std::string, relation::RelationType>& inputs) {
  return einsum::lower(plan, inputs);
}

/// For each vertex and call of `plan` the name that its value has in the text of `lower(plan, inputs)`; none for those
/// of which nothing is left.
std::map<std::string, std::string> lowered_names(const einsum::Plan& plan,
                                                 const std::map<std::string, relation::RelationType>& inputs) {
  einsum::LoweredVertices vertices;
  const tra::Plan lowered = einsum::lower(plan, inputs, vertices);
  const auto names = tra::node_names(lowered);
  std::map<std::string, std::string> out;
  for (const auto& [node, name] : einsum::node_names(plan)) {
    const auto vertex = vertices.find(node);
    if (vertex == vertices.end()) continue;
    const auto value = names.find(vertex->second.value.get());
    if (value != names.end()) out.emplace(name, value->second);
  }
  return out;
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
      .def_property_readonly("sparse_inputs", &sparse_inputs)
      .def_property_readonly("outputs", &outputs_of)
      .def_property_readonly("vertices", &vertices_of)
      .def_property_readonly("ties", &ties_of)
      .def_property_readonly("uses", &uses_of)
      .def_property_readonly("shapes", &shapes_of)
      .def_property_readonly("nodes", &nodes_of)
      .def_property_readonly("output_nodes", &output_nodes_of<einsum::Plan>)
      .def("binary", &binary, py::arg("paths"), WithoutGil())
      .def("binary_where_nans_stay", &binary_where_nans_stay, WithoutGil())
      .def("with_undecomposed_calls", &einsum::transforms::with_undecomposed_calls, WithoutGil())
      .def_property_readonly("may_lose_nans", &einsum::transforms::may_lose_nans)
      .def("gradient", &einsum::gradients::gradient, py::arg("of"),
           py::arg("paths") = std::map<std::string, einsum::transforms::Path>{}, WithoutGil())
      .def("differentiable_outputs", &einsum::gradients::differentiable_outputs, py::arg("of"), WithoutGil())
      .def("even_cuts", &einsum::even_cuts, py::arg("sites"), WithoutGil())
      .def("balanced_cuts", &einsum::balanced_cuts, py::arg("sites"), py::arg("samples"), py::arg("operations_of_byte"),
           py::arg("current"), py::arg("stored") = std::map<std::string, std::vector<CutPoints>>{}, WithoutGil())
      .def("lower", &lower, py::arg("inputs"), WithoutGil())
      .def("lowered_names", &lowered_names, py::arg("inputs"), WithoutGil())
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
  bind_json(module);
  module.def(
      "parse_equation",
      [](const std::string& text, const std::vector<Dims>& shapes, const einsum::Extents& extents) {
        const einsum::notation::Equation equation = einsum::notation::parse_equation(text, shapes, extents);
        return std::tuple(equation.operands, equation.result, equation.extents);
      },
      py::arg("text"), py::arg("shapes"), py::arg("extents") = einsum::Extents{});
}

}  // namespace joinsum::bindings

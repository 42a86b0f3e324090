#pragma once

#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <pybind11/operators.h>

#include "bindings/bindings.h"
#include "einsum/nodes.h"
#include "ia/nodes.h"
#include "tra/nodes.h"

namespace joinsum::bindings {

/// A node as Python holds it (pybind11 has no holder of constant objects).
template <class NodeT>
struct NodeHandle {
  typename NodeT::Pointer node;
};
using EinsumNodeHandle = NodeHandle<einsum::Node>;
using TraNodeHandle = NodeHandle<tra::Node>;
using IaNodeHandle = NodeHandle<ia::Node>;

template <class NodeT>
std::vector<typename NodeT::Pointer> nodes_of(const std::vector<NodeHandle<NodeT>>& handles) {
  std::vector<typename NodeT::Pointer> nodes;
  for (const NodeHandle<NodeT>& handle : handles) nodes.push_back(handle.node);
  return nodes;
}

/// Names of the outputs' nodes, in the order of the outputs.
template <class PlanT>
std::vector<std::string> output_nodes_of(const PlanT& plan) {
  const auto names = node_names(plan);
  std::vector<std::string> out;
  for (const auto& output : plan.outputs()) out.push_back(names.at(output.node.get()));
  return out;
}

/// What logical and physical plans have in Python. Outputs are (name, node, name of the input that it is tied to) when
/// a plan is made, and (name, type, that input) when it is read.
template <class PlanT, class NodeT, class InputT>
py::class_<PlanT> bind_plan_of(py::module_& module, const char* name,
                               PlanT (*parse)(const std::string&, const relation::LookupTables&)) {
  using Made = std::vector<std::tuple<std::string, NodeHandle<NodeT>, std::optional<std::string>>>;
  using Type = typename NodeT::Type;
  const auto make = [](const Made& outputs) {
    std::vector<typename PlanT::Output> made;
    for (const auto& [output, handle, tied_input] : outputs) made.push_back({output, handle.node, tied_input});
    return PlanT::make(std::move(made));
  };
  const auto inputs = [](const PlanT& plan) {
    std::vector<std::pair<std::string, Type>> out;
    for (const auto& node : plan.inputs()) out.emplace_back(node->template as<InputT>()->name, node->type());
    return out;
  };
  const auto outputs = [](const PlanT& plan) {
    std::vector<std::tuple<std::string, Type, std::optional<std::string>>> out;
    for (const auto& output : plan.outputs()) out.emplace_back(output.name, output.node->type(), output.tied_input);
    return out;
  };
  py::class_<PlanT> bound(module, name);
  bound.def_static("make", make, py::arg("outputs"), WithoutGil())
      .def_static(
          "parse",
          [parse](const std::string& text, const TableValues& tables) { return parse(text, lookup_tables(tables)); },
          py::arg("text"), py::arg("tables") = TableValues{}, WithoutGil())
      .def_property_readonly("inputs", inputs)
      .def_property_readonly("outputs", outputs)
      .def("__str__", &PlanT::text, WithoutGil())
      .def("__hash__", &PlanT::hash, WithoutGil())
      .def(py::self == py::self);
  return bound;
}

}  // namespace joinsum::bindings

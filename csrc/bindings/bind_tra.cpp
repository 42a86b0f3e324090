#include <pybind11/operators.h>

#include "bindings/bindings.h"
#include "tra/interpret.h"
#include "tra/lower.h"
#include "tra/nodes.h"
#include "tra/text.h"

namespace joinsum::bindings {
namespace {

/// A node as Python holds it (pybind11 has no holder of constant objects).
struct NodeHandle {
  tra::NodePtr node;
};

NodeHandle make_node(tra::Operation operation, std::vector<tra::NodePtr> inputs) {
  return {tra::make(std::move(operation), std::move(inputs))};
}

NodeHandle input(std::string name, RelationType type) { return {tra::make_input(std::move(name), std::move(type))}; }

NodeHandle aggregate(const NodeHandle& input, Dims group_by, kernels::Kernel kernel) {
  return make_node(tra::Aggregate{std::move(group_by), std::move(kernel)}, {input.node});
}

NodeHandle join(const NodeHandle& left, const NodeHandle& right, Dims left_keys, Dims right_keys,
                kernels::Kernel kernel) {
  return make_node(tra::Join{std::move(left_keys), std::move(right_keys), std::move(kernel)}, {left.node, right.node});
}

NodeHandle rekey(const NodeHandle& input, KeyMap key_map) {
  return make_node(tra::Rekey{std::move(key_map)}, {input.node});
}

NodeHandle filter(const NodeHandle& input, KeyExpression predicate) {
  return make_node(tra::Filter{std::move(predicate)}, {input.node});
}

NodeHandle transform(const NodeHandle& input, kernels::Kernel kernel) {
  return make_node(tra::Transform{std::move(kernel)}, {input.node});
}

NodeHandle tile(const NodeHandle& input, int64_t axis, int64_t size) {
  return make_node(tra::Tile{axis, size}, {input.node});
}

NodeHandle concat(const NodeHandle& input, int64_t key_dim, int64_t axis) {
  return make_node(tra::Concat{key_dim, axis}, {input.node});
}

/// The operator of `node` over other inputs.
NodeHandle again(const NodeHandle& node, const std::vector<NodeHandle>& inputs) {
  std::vector<tra::NodePtr> operands;
  for (const NodeHandle& operand : inputs) operands.push_back(operand.node);
  return make_node(node.node->operation(), std::move(operands));
}

void bind_nodes(py::module_& module) {
  py::class_<NodeHandle>(module, "TraNode").def_property_readonly("type", [](const NodeHandle& handle) {
    return handle.node->type();
  });
  module.def("tra_input", &input, py::arg("name"), py::arg("type"), WithoutGil());
  module.def("tra_aggregate", &aggregate, py::arg("input"), py::arg("group_by"), py::arg("kernel"), WithoutGil());
  module.def("tra_join", &join, py::arg("left"), py::arg("right"), py::arg("left_keys"), py::arg("right_keys"),
             py::arg("kernel"), WithoutGil());
  module.def("tra_rekey", &rekey, py::arg("input"), py::arg("key_map"), WithoutGil());
  module.def("tra_filter", &filter, py::arg("input"), py::arg("predicate"), WithoutGil());
  module.def("tra_transform", &transform, py::arg("input"), py::arg("kernel"), WithoutGil());
  module.def("tra_tile", &tile, py::arg("input"), py::arg("axis"), py::arg("size"), WithoutGil());
  module.def("tra_concat", &concat, py::arg("input"), py::arg("key_dim"), py::arg("axis"), WithoutGil());
  module.def("tra_again", &again, py::arg("node"), py::arg("inputs"), WithoutGil());
  module.def(
      "tra_operation_text", [](const NodeHandle& handle) { return tra::operation_text(handle.node->operation()); },
      py::arg("node"));
}

/// Outputs as (name, node, name of the input that it is tied to).
tra::Plan make_plan(const std::vector<std::tuple<std::string, NodeHandle, std::optional<std::string>>>& outputs) {
  std::vector<tra::Plan::Output> made;
  for (const auto& [name, handle, tied_input] : outputs) made.push_back({name, handle.node, tied_input});
  return tra::Plan::make(std::move(made));
}

std::vector<std::pair<std::string, RelationType>> inputs_of(const tra::Plan& plan) {
  std::vector<std::pair<std::string, RelationType>> out;
  for (const tra::NodePtr& node : plan.inputs()) out.emplace_back(node->as<tra::Input>()->name, node->type());
  return out;
}

std::vector<std::tuple<std::string, RelationType, std::optional<std::string>>> outputs_of(const tra::Plan& plan) {
  std::vector<std::tuple<std::string, RelationType, std::optional<std::string>>> out;
  for (const auto& output : plan.outputs()) out.emplace_back(output.name, output.node->type(), output.tied_input);
  return out;
}

/// Types of all nodes by the names that the text gives them.
std::map<std::string, RelationType> nodes_of(const tra::Plan& plan) {
  std::map<std::string, RelationType> out;
  const auto names = tra::node_names(plan);
  for (const tra::NodePtr& node : plan.order()) out.emplace(names.at(node.get()), node->type());
  return out;
}

TableValues tables_of(const tra::Plan& plan) {
  TableValues out;
  for (const auto& [name, table] : tra::tables_of(plan)) out.emplace(name, table->values);
  return out;
}

void bind_plan(py::module_& module) {
  py::class_<tra::Plan>(module, "TraPlan")
      .def_static("make", &make_plan, py::arg("outputs"), WithoutGil())
      .def_static(
          "parse",
          [](const std::string& text, const TableValues& tables) { return tra::parse(text, lookup_tables(tables)); },
          py::arg("text"), py::arg("tables") = TableValues{}, WithoutGil())
      .def_property_readonly("inputs", &inputs_of)
      .def_property_readonly("outputs", &outputs_of)
      .def_property_readonly("nodes", &nodes_of)
      .def_property_readonly("tables", &tables_of)
      .def("lower", &tra::lower, py::arg("grid"), py::arg("placements"), WithoutGil())
      .def("interpret", &tra::interpret, py::arg("inputs"), py::arg("scalars"), WithoutGil())
      .def("__str__", &tra::Plan::text, WithoutGil())
      .def("__hash__", &tra::Plan::hash, WithoutGil())
      .def(py::self == py::self);
}

}  // namespace

void bind_tra(py::module_& module) {
  bind_nodes(module);
  bind_plan(module);
}

}  // namespace joinsum::bindings

#include "bindings/plans.h"
#include "tra/interpret.h"
#include "tra/lower.h"
#include "tra/nodes.h"
#include "tra/text.h"

namespace joinsum::bindings {
namespace {

TraNodeHandle make_node(tra::Operation operation, const std::vector<TraNodeHandle>& inputs) {
  return {tra::make(std::move(operation), nodes_of(inputs))};
}

void bind_tra_nodes(py::module_& module) {
  py::class_<TraNodeHandle>(module, "TraNode")
      .def_property_readonly("type", [](const TraNodeHandle& handle) { return handle.node->type(); })
      .def_property_readonly("identity",
                             [](const TraNodeHandle& handle) { return reinterpret_cast<uintptr_t>(handle.node.get()); })
      .def_property_readonly("inputs", [](const TraNodeHandle& handle) {
        std::vector<TraNodeHandle> inputs;
        for (const tra::NodePtr& input : handle.node->inputs()) inputs.push_back({input});
        return inputs;
      });
  module.def(
      "tra_input",
      [](std::string name, relation::RelationType type) {
        return TraNodeHandle{tra::make_input(std::move(name), std::move(type))};
      },
      py::arg("name"), py::arg("type"), WithoutGil());
  module.def(
      "tra_aggregate",
      [](const TraNodeHandle& input, Dims group_by, kernels::table::Kernel kernel) {
        return make_node(tra::Aggregate{std::move(group_by), std::move(kernel)}, {input});
      },
      py::arg("input"), py::arg("group_by"), py::arg("kernel"), WithoutGil());
  module.def(
      "tra_join",
      [](const TraNodeHandle& left, const TraNodeHandle& right, Dims left_keys, Dims right_keys,
         kernels::table::Kernel kernel) {
        return make_node(tra::Join{std::move(left_keys), std::move(right_keys), std::move(kernel)}, {left, right});
      },
      py::arg("left"), py::arg("right"), py::arg("left_keys"), py::arg("right_keys"), py::arg("kernel"), WithoutGil());
  module.def(
      "tra_rekey",
      [](const TraNodeHandle& input, relation::KeyMap key_map) {
        return make_node(tra::Rekey{std::move(key_map)}, {input});
      },
      py::arg("input"), py::arg("key_map"), WithoutGil());
  module.def(
      "tra_filter",
      [](const TraNodeHandle& input, relation::KeyExpression predicate) {
        return make_node(tra::Filter{std::move(predicate)}, {input});
      },
      py::arg("input"), py::arg("predicate"), WithoutGil());
  module.def(
      "tra_upsert",
      [](const TraNodeHandle& base, const TraNodeHandle& updates) { return make_node(tra::Upsert{}, {base, updates}); },
      py::arg("base"), py::arg("updates"), WithoutGil());
  module.def(
      "tra_transform",
      [](const TraNodeHandle& input, kernels::table::Kernel kernel) {
        return make_node(tra::Transform{std::move(kernel)}, {input});
      },
      py::arg("input"), py::arg("kernel"), WithoutGil());
  module.def(
      "tra_tile",
      [](const TraNodeHandle& input, int64_t axis, int64_t size) { return make_node(tra::Tile{axis, size}, {input}); },
      py::arg("input"), py::arg("axis"), py::arg("size"), WithoutGil());
  module.def(
      "tra_concat",
      [](const TraNodeHandle& input, int64_t key_dim, int64_t axis) {
        return make_node(tra::Concat{key_dim, axis}, {input});
      },
      py::arg("input"), py::arg("key_dim"), py::arg("axis"), WithoutGil());
  // The operator of a node over other inputs.
  module.def(
      "tra_again",
      [](const TraNodeHandle& node, const std::vector<TraNodeHandle>& inputs) {
        return make_node(node.node->operation(), inputs);
      },
      py::arg("node"), py::arg("inputs"), WithoutGil());
  module.def(
      "tra_operation_text", [](const TraNodeHandle& handle) { return tra::operation_text(handle.node->operation()); },
      py::arg("node"));
}

/// Types of all nodes by the names that the text gives them.
std::map<std::string, relation::RelationType> types_of(const tra::Plan& plan) {
  std::map<std::string, relation::RelationType> out;
  const auto names = tra::node_names(plan);
  for (const tra::NodePtr& node : plan.order()) out.emplace(names.at(node.get()), node->type());
  return out;
}

TableValues tables_of(const tra::Plan& plan) {
  TableValues out;
  for (const auto& [name, table] : tra::tables_of(plan)) out.emplace(name, table->values);
  return out;
}

void bind_tra_plan(py::module_& module) {
  bind_plan_of<tra::Plan, tra::Node, tra::Input>(module, "TraPlan", &tra::parse)
      .def_property_readonly("nodes", &types_of)
      .def_property_readonly("tables", &tables_of)
      .def("lower", &tra::lower, py::arg("grid"), py::arg("placements"),
           py::arg("output_placements") = std::map<std::string, ia::Placement>{}, WithoutGil())
      .def("interpret", &tra::interpret, py::arg("inputs"), py::arg("scalars"), WithoutGil());
}

}  // namespace

void bind_tra(py::module_& module) {
  bind_tra_nodes(module);
  bind_tra_plan(module);
}

}  // namespace joinsum::bindings

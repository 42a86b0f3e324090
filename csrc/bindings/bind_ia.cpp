#include <set>

#include <pybind11/operators.h>

#include "bindings/bindings.h"
#include "ia/fusion.h"
#include "ia/interpret.h"
#include "ia/nodes.h"
#include "ia/text.h"
#include "ia/uncut_calls.h"

namespace joinsum::bindings {
namespace {

using ia::Grid;
using ia::PhysicalType;
using ia::Placement;

constexpr const char* kGridDoc =
    R"(Sites as a grid of prime factors, the slowest link's axis first; prints as plans do: 2x2x3.

axes, sites   extents of the axes, and their product; site = mixed-radix coordinates)";

constexpr const char* kPlacementDoc =
    R"(Where the tuples of a relation are: a state for each grid axis, or scattered; text(frontier) prints (0, *, +add).

pending            whether some axis holds partial results, to be folded
scattered          whether the owner of a tuple is no function of its key
fully_replicated   whether every site holds everything

Source: TRA paper, section 4; docs/algebra.md, section 1.)";

constexpr const char* kPhysicalTypeDoc =
    R"(Type of a relation on sites; prints as plans do: f32[100,50]<4,2> on 2x2 (0, *).

relation, grid, placement
sites                       number of sites
bytes(site), tuples(site)   what a site holds, exactly

Source: TRA paper, section 4.)";

void bind_placement(py::module_& module) {
  public_class<Grid>(module, "Grid", kGridDoc)
      .def_static("of_sites", &Grid::of_sites, py::arg("sites"))
      .def_static(
          "of_axes", [](Dims axes) { return Grid{std::move(axes)}; }, py::arg("axes"))
      .def_readonly("axes", &Grid::axes)
      .def_property_readonly("sites", &Grid::sites)
      .def("__repr__", &Grid::text)
      .def("__hash__", [](const Grid& grid) { return hash_text(grid.text()); })
      .def(py::self == py::self);
  public_class<Placement>(module, "Placement", kPlacementDoc)
      .def_static("replicated", &Placement::replicated, py::arg("grid"))
      .def_static(
          "fill",
          [](const Grid& grid, const Dims& dims, const Dims& frontier) {
            return Placement(ia::fill(grid, dims, frontier));
          },
          py::arg("grid"), py::arg("dims"), py::arg("frontier"))
      .def_static(
          "parse",
          [](const std::string& text, const Grid& grid, const Dims& frontier) {
            Scanner scanner(text);
            Placement placement = Placement::parse(scanner, grid, frontier);
            if (!scanner.at_end()) scanner.fail("text goes on after the placement");
            return placement;
          },
          py::arg("text"), py::arg("grid"), py::arg("frontier"))
      .def_property_readonly("pending", &Placement::pending)
      .def_property_readonly("scattered", [](const Placement& placement) { return placement.scattered() != nullptr; })
      .def_property_readonly("fully_replicated", &Placement::fully_replicated)
      .def("text", &Placement::text, py::arg("frontier"))
      .def("__repr__", [](const Placement& placement) { return placement.text({}); })
      .def(py::self == py::self);
}

void bind_physical_type(py::module_& module) {
  public_class<PhysicalType>(module, "PhysicalType", kPhysicalTypeDoc)
      .def_static("placed", &PhysicalType::placed, py::arg("who"), py::arg("relation"), py::arg("grid"),
                  py::arg("placement"), WithoutGil())
      .def_readonly("relation", &PhysicalType::relation)
      .def_readonly("grid", &PhysicalType::grid)
      .def_readonly("placement", &PhysicalType::placement)
      .def_property_readonly("sites", &PhysicalType::sites)
      .def("bytes", &PhysicalType::bytes, py::arg("site"))
      .def(
          "tuples", [](const PhysicalType& type, int64_t site) { return type.holding.tuples(site); }, py::arg("site"))
      .def(
          "sites_of", [](const PhysicalType& type, const Key& key) { return type.holding.sites_of(key); },
          py::arg("key"))
      .def("text", &PhysicalType::text, py::arg("full") = false, WithoutGil())
      .def("__repr__", [](const PhysicalType& type) { return type.text(); })
      .def("__hash__", [](const PhysicalType& type) { return hash_text(type.text(true)); })
      .def(py::self == py::self);
}

/// A node as Python holds it (pybind11 has no holder of constant objects).
struct NodeHandle {
  ia::NodePtr node;
};

NodeHandle shuffle(const NodeHandle& input, const Placement& target) {
  JOINSUM_USER_CHECK(target.grid() != nullptr, "shuffle: a target has one state per grid axis: target=",
                     target.text(input.node->type().relation.frontier));
  return {ia::make(ia::Shuffle{*target.grid()}, {input.node})};
}

void bind_nodes(py::module_& module) {
  py::class_<NodeHandle>(module, "IaNode").def_property_readonly("type", [](const NodeHandle& handle) {
    return handle.node->type();
  });
  module.def(
      "ia_input",
      [](std::string name, PhysicalType type) { return NodeHandle{ia::make_input(std::move(name), std::move(type))}; },
      py::arg("name"), py::arg("type"), WithoutGil());
  module.def(
      "ia_broadcast", [](const NodeHandle& input) { return NodeHandle{ia::broadcast(input.node)}; }, py::arg("input"),
      WithoutGil());
  module.def("ia_shuffle", &shuffle, py::arg("input"), py::arg("target"), WithoutGil());
}

/// Outputs as (name, node, name of the input that it is tied to).
ia::Plan make_plan(const std::vector<std::tuple<std::string, NodeHandle, std::optional<std::string>>>& outputs) {
  std::vector<ia::Plan::Output> made;
  for (const auto& [name, handle, tied_input] : outputs) made.push_back({name, handle.node, tied_input});
  return ia::Plan::make(std::move(made));
}

std::vector<std::pair<std::string, PhysicalType>> inputs_of(const ia::Plan& plan) {
  std::vector<std::pair<std::string, PhysicalType>> out;
  for (const ia::NodePtr& node : plan.inputs()) out.emplace_back(node->as<ia::Input>()->name, node->type());
  return out;
}

std::vector<std::tuple<std::string, PhysicalType, std::optional<std::string>>> outputs_of(const ia::Plan& plan) {
  std::vector<std::tuple<std::string, PhysicalType, std::optional<std::string>>> out;
  for (const auto& output : plan.outputs()) out.emplace_back(output.name, output.node->type(), output.tied_input);
  return out;
}

/// A node as Python reads it; names are those of the plan's text.
struct NodeRow {
  std::string name;
  std::string kind;       ///< the operator's name: `local_join`
  std::string operation;  ///< with its arguments: `local_join[1; 0; matmul]`
  std::vector<std::string> inputs;
  PhysicalType type;
};

/// Inputs before their users.
std::vector<NodeRow> nodes_of(const ia::Plan& plan) {
  const auto names = ia::node_names(plan);
  std::vector<NodeRow> rows;
  for (const ia::NodePtr& node : plan.order()) {
    NodeRow row{names.at(node.get()),
                ia::operator_name(node->operation()),
                ia::operation_text(node->operation(), node->type()),
                {},
                node->type()};
    for (const ia::NodePtr& input : node->inputs()) row.inputs.push_back(names.at(input.get()));
    rows.push_back(std::move(row));
  }
  return rows;
}

/// Names of the outputs' nodes, in the order of the outputs.
std::vector<std::string> output_nodes_of(const ia::Plan& plan) {
  const auto names = ia::node_names(plan);
  std::vector<std::string> out;
  for (const auto& output : plan.outputs()) out.push_back(names.at(output.node.get()));
  return out;
}

/// Names of the nodes that are computed with the folds above them.
std::set<std::string> fused_of(const ia::Plan& plan) {
  const auto names = ia::node_names(plan);
  std::set<std::string> out;
  for (const ia::Node* node : ia::Formation(plan).unformed()) out.insert(names.at(node));
  return out;
}

/// The logical content of every output.
std::map<std::string, ia::Contents> interpret(const ia::Plan& plan, const std::map<std::string, ia::Contents>& inputs,
                                              const kernels::Scalars& scalars) {
  const auto relations = ia::interpret(plan, inputs, scalars);
  std::map<std::string, ia::Contents> out;
  for (const auto& output : plan.outputs())
    out[output.name] = ia::contents(relations.at(output.name), output.node->type());
  return out;
}

void bind_plan(py::module_& module) {
  py::class_<NodeRow>(module, "IaNodeRow")
      .def_readonly("name", &NodeRow::name)
      .def_readonly("kind", &NodeRow::kind)
      .def_readonly("operation", &NodeRow::operation)
      .def_readonly("inputs", &NodeRow::inputs)
      .def_readonly("type", &NodeRow::type);
  py::class_<ia::Plan>(module, "IaPlan")
      .def_static("make", &make_plan, py::arg("outputs"), WithoutGil())
      .def_static(
          "parse",
          [](const std::string& text, const TableValues& tables) { return ia::parse(text, lookup_tables(tables)); },
          py::arg("text"), py::arg("tables") = TableValues{}, WithoutGil())
      .def_property_readonly("inputs", &inputs_of)
      .def_property_readonly("outputs", &outputs_of)
      .def_property_readonly("nodes", &nodes_of)
      .def_property_readonly("output_nodes", &output_nodes_of)
      .def_property_readonly("fused_joins", &fused_of)
      .def_property_readonly("grid", &ia::Plan::grid)
      .def("with_uncut_calls", &ia::with_uncut_calls, WithoutGil())
      .def("interpret", &interpret, py::arg("inputs"), py::arg("scalars"), WithoutGil())
      .def("__str__", &ia::Plan::text, WithoutGil())
      .def("__hash__", &ia::Plan::hash, WithoutGil())
      .def(py::self == py::self);
}

}  // namespace

void bind_ia(py::module_& module) {
  bind_placement(module);
  bind_physical_type(module);
  bind_nodes(module);
  bind_plan(module);
}

}  // namespace joinsum::bindings

#include <set>

#include "bindings/plans.h"
#include "ia/analysis/materialization.h"
#include "ia/interpret.h"
#include "ia/nodes.h"
#include "ia/text.h"
#include "ia/transforms/undecomposed_calls.h"

namespace joinsum::bindings {
namespace {

using ia::Grid;
using ia::PhysicalType;
using ia::Placement;

constexpr const char* kGridDoc =
    R"(Sites as a grid of prime factors, the slowest link's axis first; prints as plans do: 2x2x3.

axes, sites   extents of the axes, and their product; site = mixed-radix coordinates)";

constexpr const char* kReplicatedDoc = R"(A grid axis whose sites all hold the same; plans print it *.)";

constexpr const char* kSplitDoc =
    R"(A grid axis that divides key dimension dim; plans print the dimension's number.

domain   number of keys of the dimension when the relation was placed, from which owners are computed)";

constexpr const char* kPendingDoc =
    R"(A grid axis whose sites hold partial results, to be reduced with kernel; plans print +add.)";

constexpr const char* kPlacementDoc =
    R"(Where the tuples of a relation are: a state for each grid axis, or scattered; text(frontier) prints (0, *, +add).

states             Replicated, Split or Pending, one for each grid axis; none where the relation is scattered
pending            whether some axis holds partial results, to be reduced
scattered          whether the owner of a tuple is no function of its key
fully_replicated   whether every site holds everything

Source: TRA paper, section 4; docs/algebra.md, section 1.)";

constexpr const char* kPhysicalTypeDoc =
    R"(Type of a relation on sites; prints as plans do: f32[100,50]<4,2> on 2x2 (0, *).

relation, grid, placement
sites                       number of sites
parts                       into how many parts the sites divide each key dimension
bytes(site), tuples(site)   what a site holds, exactly

Source: TRA paper, section 4.)";

std::vector<ia::AxisState> states_of(const Placement& placement) {
  return placement.grid() == nullptr ? std::vector<ia::AxisState>{} : placement.grid()->states;
}

/// What a grid axis does, as values that Python reads, compares and makes.
void bind_axis_states(py::module_& module) {
  public_class<ia::Replicated>(module, "Replicated", kReplicatedDoc)
      .def(py::init<>())
      .def("__repr__", [](const ia::Replicated&) { return "Replicated()"; })
      .def("__hash__", [](const ia::Replicated&) { return 0; })
      .def(py::self == py::self);
  public_class<ia::Split>(module, "Split", kSplitDoc)
      .def(py::init<int64_t, int64_t>(), py::arg("dim"), py::arg("domain"))
      .def_readonly("dim", &ia::Split::dim)
      .def_readonly("domain", &ia::Split::domain)
      .def("__repr__", [](const ia::Split& split) { return concatenate("Split(", split.dim, ", ", split.domain, ")"); })
      .def("__hash__", [](const ia::Split& split) { return py::hash(py::make_tuple(split.dim, split.domain)); })
      .def(py::self == py::self);
  public_class<ia::Pending>(module, "Pending", kPendingDoc)
      .def(py::init<std::string>(), py::arg("kernel"))
      .def_readonly("kernel", &ia::Pending::kernel)
      .def("__repr__", [](const ia::Pending& pending) { return "Pending('" + pending.kernel + "')"; })
      .def("__hash__", [](const ia::Pending& pending) { return hash_text(pending.kernel); })
      .def(py::self == py::self);
}

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
      .def_static(
          "of_states",
          [](std::vector<ia::AxisState> states) { return Placement(ia::GridPlacement{std::move(states)}); },
          py::arg("states"))
      .def_property_readonly("states", &states_of)
      .def_property_readonly("pending", &Placement::pending)
      .def_property_readonly("scattered", [](const Placement& placement) { return placement.scattered() != nullptr; })
      .def_property_readonly("fully_replicated", &Placement::fully_replicated)
      .def("text", &Placement::text, py::arg("frontier"))
      .def("__repr__", [](const Placement& placement) { return placement.text({}); })
      .def(py::self == py::self);
}

void bind_physical_type(py::module_& module) {
  public_class<PhysicalType, std::shared_ptr<PhysicalType>>(module, "PhysicalType", kPhysicalTypeDoc)
      .def_static("placed", &PhysicalType::placed, py::arg("who"), py::arg("relation"), py::arg("grid"),
                  py::arg("placement"), WithoutGil())
      .def_readonly("relation", &PhysicalType::relation)
      .def_readonly("grid", &PhysicalType::grid)
      .def_readonly("placement", &PhysicalType::placement)
      .def_property_readonly("sites", &PhysicalType::sites)
      .def_property_readonly("parts", &PhysicalType::parts)
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

IaNodeHandle shuffle(const IaNodeHandle& input, const Placement& target) {
  JOINSUM_USER_CHECK(target.grid() != nullptr, "shuffle: a target has one state per grid axis: target=",
                     target.text(input.node->type().relation.frontier));
  return {ia::make(ia::Shuffle{*target.grid()}, {input.node})};
}

void bind_ia_nodes(py::module_& module) {
  py::class_<IaNodeHandle>(module, "IaNode").def_property_readonly("type", [](const IaNodeHandle& handle) {
    return handle.node->type();
  });
  module.def(
      "ia_input",
      [](std::string name, PhysicalType type) {
        return IaNodeHandle{ia::make_input(std::move(name), std::move(type))};
      },
      py::arg("name"), py::arg("type"), WithoutGil());
  module.def(
      "ia_broadcast", [](const IaNodeHandle& input) { return IaNodeHandle{ia::broadcast(input.node)}; },
      py::arg("input"), WithoutGil());
  module.def("ia_shuffle", &shuffle, py::arg("input"), py::arg("target"), WithoutGil());
}

/// A node as Python reads it; names are those of the plan's text.
struct NodeRow {
  std::string name;
  std::vector<std::string> inputs;
  ia::NodePtr node;

  template <class Op>
  const Op* as() const {
    return node->as<Op>();
  }
};

/// Kernel of a join, an aggregation or a map.
std::optional<kernels::table::Kernel> kernel_of(const NodeRow& row) {
  if (const auto* join = row.as<ia::LocalJoin>()) return join->kernel;
  if (const auto* aggregate = row.as<ia::LocalAggregate>()) return aggregate->kernel;
  if (const auto* map = row.as<ia::LocalMap>()) return map->array_map;
  return std::nullopt;
}

std::optional<kernels::call::Call> call_of(const NodeRow& row) {
  const auto* call = row.as<ia::LocalCall>();
  return call == nullptr ? std::nullopt : std::optional(call->call);
}

/// Key dimensions by which an aggregation groups.
Dims group_by_of(const NodeRow& row) {
  const auto* aggregate = row.as<ia::LocalAggregate>();
  return aggregate == nullptr ? Dims{} : aggregate->group_by;
}

/// Key dimensions on which a join meets, of its left and its right operand.
std::pair<Dims, Dims> joined_keys_of(const NodeRow& row) {
  const auto* join = row.as<ia::LocalJoin>();
  return join == nullptr ? std::pair<Dims, Dims>{} : std::pair(join->left_keys, join->right_keys);
}

/// Inputs before their users.
std::vector<NodeRow> rows_of(const ia::Plan& plan) {
  const auto names = ia::node_names(plan);
  std::vector<NodeRow> rows;
  for (const ia::NodePtr& node : plan.order()) {
    NodeRow row{names.at(node.get()), {}, node};
    for (const ia::NodePtr& input : node->inputs()) row.inputs.push_back(names.at(input.get()));
    rows.push_back(std::move(row));
  }
  return rows;
}

/// Names of the nodes that are computed with the reductions above them.
std::set<std::string> fused_of(const ia::Plan& plan) {
  const auto names = ia::node_names(plan);
  std::set<std::string> out;
  for (const ia::Node* node : ia::analysis::Materialization(plan).not_materialized()) out.insert(names.at(node));
  return out;
}

/// The logical content of every output.
std::map<std::string, ia::Contents> interpret(const ia::Plan& plan, const std::map<std::string, ia::Contents>& inputs,
                                              const kernels::table::Scalars& scalars) {
  const auto relations = ia::interpret(plan, inputs, scalars);
  std::map<std::string, ia::Contents> out;
  for (const auto& output : plan.outputs())
    out[output.name] = ia::contents(relations.at(output.name), output.node->type());
  return out;
}

void bind_ia_plan(py::module_& module) {
  py::class_<NodeRow>(module, "IaNodeRow")
      .def_readonly("name", &NodeRow::name)
      .def_property_readonly("kind", [](const NodeRow& row) { return ia::operator_name(row.node->operation()); })
      .def_property_readonly(
          "operation", [](const NodeRow& row) { return ia::operation_text(row.node->operation(), row.node->type()); })
      .def_readonly("inputs", &NodeRow::inputs)
      .def_property_readonly("type", [](const NodeRow& row) { return row.node->type(); })
      .def_property_readonly("group_by", &group_by_of)
      .def_property_readonly("joined_keys", &joined_keys_of)
      .def_property_readonly("kernel", &kernel_of)
      .def_property_readonly("call", &call_of);
  bind_plan_of<ia::Plan, ia::Node, ia::Input>(module, "IaPlan", &ia::parse)
      .def_property_readonly("nodes", &rows_of)
      .def_property_readonly("output_nodes", &output_nodes_of<ia::Plan>)
      .def_property_readonly("fused_joins", &fused_of)
      .def_property_readonly("grid", &ia::Plan::grid)
      .def("with_undecomposed_calls", &ia::transforms::with_undecomposed_calls, WithoutGil())
      .def("interpret", &interpret, py::arg("inputs"), py::arg("scalars"), WithoutGil());
}

}  // namespace

void bind_ia(py::module_& module) {
  bind_axis_states(module);
  bind_placement(module);
  bind_physical_type(module);
  bind_ia_nodes(module);
  bind_ia_plan(module);
}

}  // namespace joinsum::bindings

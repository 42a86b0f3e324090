#include <algorithm>

#include "bindings/plans.h"
#include "einsum/text.h"
#include "optimizer/contraction_order.h"
#include "optimizer/cost/cost.h"
#include "optimizer/eindecomp/partition.h"
#include "optimizer/graph_placement.h"
#include "optimizer/optimizer.h"
#include "optimizer/reuse/plan_reuse.h"
#include "optimizer/rules/rule.h"
#include "optimizer/verification/computed_vertices.h"
#include "optimizer/verification/verify.h"

namespace joinsum::bindings {

using optimizer::cost::Cluster;
using optimizer::cost::Curve;
using optimizer::cost::NodeCost;
using optimizer::cost::PlanCost;
using optimizer::cost::Profile;
using optimizer::rules::Rule;
using optimizer::verification::Verdict;

namespace {

void bind_objectives(py::module_& module) {
  using optimizer::cost::ObjectiveRow;
  py::class_<ObjectiveRow>(module, "Objective")
      .def_readonly("name", &ObjectiveRow::name)
      .def_readonly("unit", &ObjectiveRow::unit)
      .def_readonly("description", &ObjectiveRow::description)
      .def_readonly("needs_cluster", &ObjectiveRow::needs_cluster);
  module.def("objectives", &optimizer::cost::objectives, py::return_value_policy::reference);
}

void bind_rules(py::module_& module) {
  py::class_<Rule>(module, "Rule")
      .def_readonly("name", &Rule::name)
      .def_readonly("law", &Rule::law)
      .def_readonly("when", &Rule::when)
      .def_readonly("source", &Rule::source);
  module.def("rules", &optimizer::rules::all_rules, py::return_value_policy::reference);
}

void bind_verify(py::module_& module) {
  py::class_<Verdict>(module, "Verdict")
      .def_property_readonly("kind",
                             [](const Verdict& verdict) { return optimizer::verification::name_of(verdict.kind); })
      .def_readonly("reason", &Verdict::reason);
  module.def(
      "verify",
      [](const ia::Plan& plan, const tra::Plan& program, uint64_t seed, int64_t rounds) {
        return optimizer::verification::verify(plan, program, {seed, rounds});
      },
      py::arg("plan"), py::arg("program"), py::arg("seed"), py::arg("rounds"), WithoutGil());
  module.def(
      "computed_vertices",
      [](const ia::Plan& plan, const einsum::Plan& graph, const std::map<std::string, einsum::transforms::Path>& paths,
         const std::vector<EinsumNodeHandle>& vertices) {
        return optimizer::verification::computed_vertices(plan, graph, paths, nodes_of(vertices));
      },
      py::arg("plan"), py::arg("graph"), py::arg("paths"), py::arg("vertices"), WithoutGil());
}

optimizer::Optimized optimize(const tra::Plan& plan, const ia::Grid& grid,
                              const optimizer::model::InputPlacements& inputs,
                              const optimizer::model::InputPlacements& pins, const std::string& minimize,
                              const Cluster& cluster, std::vector<std::string> without, int64_t plans,
                              std::optional<double> seconds, bool verify,
                              std::vector<optimizer::PartialPlan> warm_starts) {
  return optimizer::optimize(plan, grid, inputs,
                             {.minimize = optimizer::cost::objective_named(minimize),
                              .cluster = cluster,
                              .pins = pins,
                              .verify = verify,
                              .without = std::move(without),
                              .plans = plans,
                              .seconds = seconds,
                              .warm_starts = std::move(warm_starts)});
}

/// The order of joins of the vertex that the plan's text calls `vertex`: path, cost, flops, which orders were compared.
std::tuple<einsum::transforms::Path, double, double, std::string> contraction_order(
    const einsum::Plan& plan, const std::string& vertex, const std::vector<einsum::transforms::Path>& proposals,
    const ia::Grid& grid, const std::string& minimize, const Cluster& cluster, bool everywhere) {
  const auto names = einsum::node_names(plan);
  const auto order = plan.order();
  const auto at = std::find_if(order.begin(), order.end(), [&](const auto& node) {
    return names.at(node.get()) == vertex && node->template as<einsum::Einsum>() != nullptr;
  });
  JOINSUM_USER_CHECK(at != order.end(), "contraction_order: no such vertex: vertex=", vertex);
  std::vector<einsum::TensorType> operands;
  for (const auto& input : (*at)->inputs()) operands.push_back(input->type());
  const auto found =
      optimizer::contraction_order(*(*at)->as<einsum::Einsum>(), operands,
                                   {grid, optimizer::cost::objective_named(minimize), cluster, everywhere}, proposals);
  return {found.path, found.cost, found.flops, optimizer::name_of(found.compared)};
}

void bind_optimize(py::module_& module) {
  py::class_<optimizer::rules::Step>(module, "Step")
      .def_readonly("rule", &optimizer::rules::Step::rule)
      .def_readonly("node", &optimizer::rules::Step::node)
      .def_readonly("before", &optimizer::rules::Step::before)
      .def_readonly("after", &optimizer::rules::Step::after);
  py::class_<optimizer::Candidate>(module, "Candidate")
      .def_readonly("name", &optimizer::Candidate::name)
      .def_readonly("plan", &optimizer::Candidate::plan)
      .def_readonly("steps", &optimizer::Candidate::steps)
      .def_readonly("exact", &optimizer::Candidate::exact);
  py::class_<optimizer::PhaseReport>(module, "PhaseReport")
      .def_readonly("name", &optimizer::PhaseReport::name)
      .def_readonly("seconds", &optimizer::PhaseReport::seconds)
      .def_readonly("plans", &optimizer::PhaseReport::plans)
      .def_readonly("best", &optimizer::PhaseReport::best);
  py::class_<optimizer::Optimized>(module, "Optimized")
      .def_readonly("candidates", &optimizer::Optimized::candidates)
      .def_readonly("phases", &optimizer::Optimized::phases)
      .def_readonly("out_of_time", &optimizer::Optimized::out_of_time)
      .def_readonly("warm_starts", &optimizer::Optimized::warm_starts);
  py::class_<optimizer::PartialPlan>(module, "PartialPlan")
      .def(py::init(
               [](optimizer::model::InputPlacements inputs, optimizer::model::InputPlacements values, bool everywhere) {
                 return optimizer::PartialPlan{std::move(inputs), std::move(values), everywhere};
               }),
           py::arg("inputs"), py::arg("values"), py::arg("everywhere"));
  module.def("phase_names", &optimizer::phase_names);
  module.def("optimize", &optimize, py::arg("plan"), py::arg("grid"), py::arg("inputs"), py::arg("pins"),
             py::arg("minimize"), py::arg("cluster"), py::arg("without"), py::arg("plans"), py::arg("seconds"),
             py::arg("verify"), py::arg("warm_starts"), WithoutGil());
}

void bind_plan_reuse(py::module_& module) {
  py::class_<optimizer::reuse::Scaling>(module, "Scaling")
      .def_readonly("planned", &optimizer::reuse::Scaling::planned)
      .def_readonly("requested", &optimizer::reuse::Scaling::requested)
      .def_readonly("difference", &optimizer::reuse::Scaling::difference);
  module.def("scaling", &optimizer::reuse::scaling, py::arg("planned"), py::arg("requested"), WithoutGil());
  module.def("reused", &optimizer::reuse::reused, py::arg("plan"), py::arg("planned"), py::arg("requested"),
             WithoutGil());
  module.def("on_one_site", &optimizer::reuse::on_one_site, py::arg("program"), WithoutGil());
}

/// Sizes and seconds; nothing measured where both are empty.
using CurveLists = std::pair<std::vector<double>, std::vector<double>>;

Curve curve(const std::string& what, const CurveLists& lists) {
  return lists.first.empty() && lists.second.empty() ? Curve() : Curve(what, lists.first, lists.second);
}

void bind_profile(py::module_& module) {
  py::class_<Profile, std::shared_ptr<Profile>>(module, "Profile")
      .def(py::init([](double run_seconds, double node_seconds, double overlap) {
             JOINSUM_USER_CHECK(overlap >= 0 && overlap <= 1,
                                "profile: a fraction is at least 0 and at most 1: overlap=", overlap);
             auto profile = std::make_shared<Profile>();
             profile->run_seconds = run_seconds;
             profile->node_seconds = node_seconds;
             profile->overlap = overlap;
             return profile;
           }),
           py::arg("run_seconds"), py::arg("node_seconds"), py::arg("overlap"))
      .def("add_link",
           [](Profile& profile, Dims axes, const CurveLists& all, const CurveLists& pair) {
             profile.links.push_back({std::move(axes), curve("links.all", all), curve("links.pair", pair)});
           })
      .def("add_products",
           [](Profile& profile, const std::string& dtype, const std::vector<double>& extents,
              const std::vector<double>& seconds) {
             profile.products.emplace_back(dtype_named(dtype), extents, seconds);
           })
      .def("add_elementwise",
           [](Profile& profile, int64_t operands, int64_t flops_per_element, const std::string& domain,
              int64_t element_bytes, const CurveLists& seconds) {
             profile.elementwise.push_back(
                 {operands, flops_per_element, domain_named(domain), element_bytes, curve("elementwise", seconds)});
           })
      .def("add_reductions",
           [](Profile& profile, int64_t element_bytes, const CurveLists& rows, const CurveLists& keys) {
             profile.reductions.push_back(
                 {element_bytes, curve("reductions.rows", rows), curve("reductions.keys", keys)});
           })
      .def("set_copies", [](Profile& profile, const CurveLists& copies) { profile.copies = curve("copies", copies); });
}

using optimizer::eindecomp::PartitionPlan;
using optimizer::eindecomp::VertexPartition;

void bind_partition(py::module_& module) {
  py::class_<VertexPartition>(module, "VertexPartition")
      .def_readonly("parts", &VertexPartition::parts)
      .def_readonly("join", &VertexPartition::join)
      .def_readonly("aggregation", &VertexPartition::aggregation)
      .def_readonly("repartitions", &VertexPartition::repartitions);
  py::class_<PartitionPlan>(module, "PartitionPlan")
      .def_readonly("vertices", &PartitionPlan::vertices)
      .def_readonly("cost", &PartitionPlan::cost)
      .def_readonly("lower_bound", &PartitionPlan::lower_bound)
      .def_readonly("exact", &PartitionPlan::exact)
      .def_readonly("method", &PartitionPlan::method)
      .def_readonly("tables", &PartitionPlan::tables)
      .def_readonly("distinct_tables", &PartitionPlan::distinct_tables);
  module.def(
      "partition",
      [](const einsum::json::JsonGraph& graph,
         const std::vector<std::pair<std::string, std::map<std::string, int64_t>>>& pins, int64_t calls,
         std::optional<double> seconds) {
        std::vector<optimizer::eindecomp::PartitionPin> all;
        for (const auto& [name, parts] : pins) all.push_back({name, parts});
        return optimizer::eindecomp::partition(graph, all, calls, {.seconds = seconds});
      },
      py::arg("graph"), py::arg("pins"), py::arg("calls"), py::arg("seconds"), WithoutGil());
}

using optimizer::GraphPin;
using optimizer::GraphPlacement;
using optimizer::GraphPlacer;
using optimizer::VertexPlacement;

void bind_graph_placement(py::module_& module) {
  py::class_<GraphPin>(module, "GraphPin")
      .def(py::init([](std::string name, std::map<std::string, int64_t> parts,
                       std::optional<std::vector<std::string>> axes,
                       bool output) { return GraphPin{std::move(name), std::move(parts), std::move(axes), output}; }),
           py::arg("name"), py::arg("parts"), py::arg("axes") = std::nullopt, py::arg("output") = false);
  py::class_<VertexPlacement>(module, "VertexPlacement")
      .def_readonly("name", &VertexPlacement::name)
      .def_readonly("vertex", &VertexPlacement::vertex)
      .def_readonly("input", &VertexPlacement::input)
      .def_readonly("parts", &VertexPlacement::parts)
      .def_readonly("axes", &VertexPlacement::axes)
      .def_readonly("wire_bytes", &VertexPlacement::wire_bytes)
      .def_readonly("seconds", &VertexPlacement::seconds);
  py::class_<GraphPlacement>(module, "GraphPlacement")
      .def_readonly("vertices", &GraphPlacement::vertices)
      .def_readonly("plan", &GraphPlacement::plan)
      .def_readonly("cost", &GraphPlacement::cost)
      .def_readonly("lower_bound", &GraphPlacement::lower_bound)
      .def_readonly("exact", &GraphPlacement::exact)
      .def_readonly("wire_bytes", &GraphPlacement::wire_bytes)
      .def_readonly("seconds", &GraphPlacement::seconds)
      .def_readonly("peak_bytes", &GraphPlacement::peak_bytes)
      .def_readonly("peak_value", &GraphPlacement::peak_value)
      .def_readonly("peak_value_bytes", &GraphPlacement::peak_value_bytes);
  py::class_<GraphPlacer>(module, "GraphPlacer")
      .def(py::init([](const einsum::Plan& plan, const std::map<std::string, einsum::transforms::Path>& paths,
                       const std::vector<std::pair<std::string, EinsumNodeHandle>>& vertices, const ia::Grid& grid,
                       const std::string& objective, const Cluster& cluster) {
             GraphPlacer::Names names;
             for (const auto& [name, handle] : vertices) names.emplace_back(name, handle.node);
             return GraphPlacer(plan, paths, names, grid, optimizer::cost::objective_named(objective), cluster);
           }),
           py::arg("plan"), py::arg("paths"), py::arg("vertices"), py::arg("grid"), py::arg("objective"),
           py::arg("cluster"))
      .def("has", &GraphPlacer::has, py::arg("name"))
      .def("place", &GraphPlacer::place, py::arg("pins"), py::arg("seconds"), py::arg("byte_price") = 0.0,
           py::arg("bounded") = true, WithoutGil())
      .def(
          "within",
          [](const GraphPlacer& placer, const std::vector<GraphPin>& pins, int64_t limit, double most,
             bool may_repeat) {
            auto found = placer.within(pins, limit, most, may_repeat);
            return std::pair(std::move(found.best), found.complete);
          },
          py::arg("pins"), py::arg("limit"), py::arg("most"), py::arg("may_repeat"), WithoutGil())
      .def("least_seconds", &GraphPlacer::least_seconds, py::arg("in_any_order"), WithoutGil());
}

}  // namespace

void bind_optimizer(py::module_& module) {
  bind_profile(module);
  bind_objectives(module);
  py::class_<Cluster>(module, "Cluster")
      .def(py::init([](std::string name, double flops_per_second, double bytes_per_second, double latency_seconds,
                       std::optional<int64_t> memory_bytes, std::shared_ptr<Profile> profile) {
             return Cluster{std::move(name), flops_per_second, bytes_per_second,
                            latency_seconds, memory_bytes,     std::move(profile)};
           }),
           py::arg("name"), py::arg("flops_per_second"), py::arg("bytes_per_second"), py::arg("latency_seconds"),
           py::arg("memory_bytes"), py::arg("profile") = nullptr);
  py::class_<NodeCost>(module, "NodeCost")
      .def_readonly("node", &NodeCost::node)
      .def_readonly("operation", &NodeCost::operation)
      .def_readonly("paper_floats", &NodeCost::paper_floats)
      .def_readonly("wire_bytes", &NodeCost::wire_bytes)
      .def_readonly("flops", &NodeCost::flops)
      .def_readonly("seconds", &NodeCost::seconds)
      .def_readonly("peak_bytes", &NodeCost::peak_bytes);
  py::class_<PlanCost>(module, "PlanCost")
      .def_readonly("nodes", &PlanCost::nodes)
      .def_readonly("paper_floats", &PlanCost::paper_floats)
      .def_readonly("wire_bytes", &PlanCost::wire_bytes)
      .def_readonly("flops", &PlanCost::flops)
      .def_property_readonly("peak_bytes", [](const PlanCost& cost) { return cost.peak.bytes; })
      .def_readonly("run_seconds", &PlanCost::run_seconds)
      .def_readonly("hidden_seconds", &PlanCost::hidden_seconds)
      .def_readonly("seconds", &PlanCost::seconds);
  bind_optimize(module);
  bind_plan_reuse(module);
  module.def("contraction_order", &contraction_order, py::arg("plan"), py::arg("vertex"), py::arg("proposals"),
             py::arg("grid"), py::arg("minimize"), py::arg("cluster"), py::arg("everywhere"), WithoutGil());
  bind_partition(module);
  bind_graph_placement(module);
  module.def("cost", &optimizer::cost::plan_cost, py::arg("plan"), py::arg("cluster"), WithoutGil());
  bind_rules(module);
  bind_verify(module);
}

}  // namespace joinsum::bindings

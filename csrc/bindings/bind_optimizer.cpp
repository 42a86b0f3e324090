#include "bindings/bindings.h"
#include "optimizer/cost/cost.h"

namespace joinsum::bindings {

using optimizer::Cluster;
using optimizer::Curve;
using optimizer::NodeCost;
using optimizer::PlanCost;
using optimizer::Profile;

namespace {

/// Sizes and seconds; nothing measured where both are empty.
using CurveLists = std::pair<std::vector<double>, std::vector<double>>;

Curve curve(const std::string& what, const CurveLists& lists) {
  return lists.first.empty() && lists.second.empty() ? Curve() : Curve(what, lists.first, lists.second);
}

void bind_profile(py::module_& module) {
  py::class_<Profile, std::shared_ptr<Profile>>(module, "Profile")
      .def(py::init([](double run_seconds, double node_seconds) {
             auto profile = std::make_shared<Profile>();
             profile->run_seconds = run_seconds;
             profile->node_seconds = node_seconds;
             return profile;
           }),
           py::arg("run_seconds"), py::arg("node_seconds"))
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
      .def("add_folds",
           [](Profile& profile, int64_t element_bytes, const CurveLists& rows, const CurveLists& keys) {
             profile.folds.push_back({element_bytes, curve("folds.rows", rows), curve("folds.keys", keys)});
           })
      .def("set_copies", [](Profile& profile, const CurveLists& copies) { profile.copies = curve("copies", copies); });
}

}  // namespace

void bind_optimizer(py::module_& module) {
  bind_profile(module);
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
      .def_readonly("seconds", &NodeCost::seconds);
  py::class_<PlanCost>(module, "PlanCost")
      .def_readonly("nodes", &PlanCost::nodes)
      .def_readonly("paper_floats", &PlanCost::paper_floats)
      .def_readonly("wire_bytes", &PlanCost::wire_bytes)
      .def_readonly("flops", &PlanCost::flops)
      .def_readonly("peak_bytes", &PlanCost::peak_bytes)
      .def_readonly("run_seconds", &PlanCost::run_seconds)
      .def_readonly("seconds", &PlanCost::seconds);
  module.def("cost", &optimizer::cost, py::arg("plan"), py::arg("cluster"), WithoutGil());
}

}  // namespace joinsum::bindings

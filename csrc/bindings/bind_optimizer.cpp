#include "bindings/bindings.h"
#include "optimizer/cost/cost.h"

namespace joinsum::bindings {

using optimizer::Cluster;
using optimizer::NodeCost;
using optimizer::PlanCost;

void bind_optimizer(py::module_& module) {
  py::class_<Cluster>(module, "Cluster")
      .def(py::init<std::string, double, double, double, std::optional<int64_t>>(), py::arg("name"),
           py::arg("flops_per_second"), py::arg("bytes_per_second"), py::arg("latency_seconds"),
           py::arg("memory_bytes"));
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
      .def_readonly("seconds", &PlanCost::seconds);
  module.def("cost", &optimizer::cost, py::arg("plan"), py::arg("cluster"), WithoutGil());
}

}  // namespace joinsum::bindings

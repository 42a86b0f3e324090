#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include "bindings/bindings.h"
#include "runtime/executor.h"
#include "runtime/relation.h"
#include "runtime/transport.h"

namespace joinsum::bindings {
namespace {

using runtime::BlockStore;
using runtime::Executor;
using runtime::NodeTrace;
using runtime::StoredRelation;
using runtime::Transport;

/// torch's own errors keep their Python types (out of memory, linear algebra) and lose the C++ stack.
void translate_torch_error(std::exception_ptr error) {
  try {
    if (error) std::rethrow_exception(error);
  } catch (const c10::Error&) {
    torch::translate_exception_to_python(error);
  }
}

/// Lets Ctrl-C end a wait for other sites.
void check_signals() {
  const py::gil_scoped_acquire lock;
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

void close_process_groups() {
  const py::gil_scoped_release unlocked;
  runtime::close_process_groups();
}

/// Sends flat arrays, by position in `messages` as (from, to, elements); what comes back stands at the same positions.
std::vector<std::optional<at::Tensor>> exchange(Transport& transport, const std::string& who,
                                                const std::vector<std::tuple<int64_t, int64_t, int64_t>>& messages,
                                                const std::map<size_t, at::Tensor>& payload, const at::Tensor& like) {
  std::vector<runtime::Message> list;
  for (const auto& [from, to, elements] : messages) list.push_back({from, to, elements});
  const auto delivery = transport.start(who, list, like.options(), [&](size_t index) { return payload.at(index); });
  std::vector<std::optional<at::Tensor>> out;
  for (at::Tensor& array : delivery->wait()) {
    out.push_back(array.defined() ? std::optional(std::move(array)) : std::nullopt);
  }
  return out;
}

void bind_transport(py::module_& module) {
  py::enum_<runtime::Collectives>(module, "Collectives")
      .value("table", runtime::Collectives::kTable)
      .value("never", runtime::Collectives::kNever)
      .value("always", runtime::Collectives::kAlways);
  py::class_<Transport, std::shared_ptr<Transport>>(module, "Transport")
      .def_property_readonly("name", &Transport::name)
      .def_property_readonly("sites", &Transport::sites)
      .def_property_readonly("local_sites", &Transport::local_sites)
      .def("agree", &Transport::agree, py::arg("what"), py::arg("text"), WithoutGil())
      .def("greatest", &Transport::greatest, py::arg("values"), WithoutGil())
      .def("exchange", &exchange, py::arg("who"), py::arg("messages"), py::arg("payload"), py::arg("like"),
           WithoutGil())
      .def("bytes_sent", [](const Transport& transport) { return transport.counters().sent; });
  module.def("make_loopback", &runtime::make_loopback, py::arg("sites"));
  module.def("make_process_group", &runtime::make_process_group, py::arg("group_name"), py::arg("timeout_seconds"),
             py::arg("collectives"), WithoutGil());
}

/// Whether `array` is a view of what `relation` keeps.
bool keeps(const StoredRelation& relation, BlockStore& store, const at::Tensor& array) {
  for (const auto& [site, blocks] : relation.sites) {
    for (const auto& block : blocks) {
      if (runtime::Pin(store, block).tensor().is_alias_of(array)) return true;
    }
  }
  return false;
}

void bind_stored_relation(py::module_& module) {
  py::class_<BlockStore, std::shared_ptr<BlockStore>>(module, "BlockStore")
      .def_property_readonly("bytes", &BlockStore::bytes)
      .def_property_readonly("peak_bytes", &BlockStore::peak_bytes);
  module.def("make_memory_store", &runtime::make_memory_store);
  py::class_<StoredRelation>(module, "StoredRelation")
      .def_readonly("type", &StoredRelation::type)
      .def("tuples", &runtime::tuples, py::arg("store"), WithoutGil())
      .def("blocks", &runtime::block_arrays, py::arg("store"), WithoutGil())
      .def("whole_tensor", &runtime::whole_tensor, py::arg("store"), WithoutGil())
      .def("keeps", &keeps, py::arg("store"), py::arg("array"), WithoutGil());
  module.def("place_tensor", &runtime::place_tensor, py::arg("tensor"), py::arg("type"), py::arg("sites"),
             py::arg("store"), py::arg("copy"), WithoutGil());
  module.def("retyped", &runtime::retyped, py::arg("relation"), py::arg("type"), py::arg("store"), WithoutGil());
  module.def("place_blocks", &runtime::place_blocks, py::arg("arrays"), py::arg("type"), py::arg("sites"),
             py::arg("store"), WithoutGil());
  module.def("place_tuples", &runtime::place_tuples, py::arg("tuples"), py::arg("type"), py::arg("sites"),
             py::arg("store"), py::arg("copy"), WithoutGil());
}

/// What each node of a run did; Python objects are made of it when they are asked for.
struct RunTrace {
  std::vector<NodeTrace> entries;
};

/// Outputs by name, and what each node did. By value: an output that Python drops is freed.
std::pair<std::map<std::string, StoredRelation>, RunTrace> run(Executor& executor, const ia::Plan& plan,
                                                               const std::map<std::string, StoredRelation>& inputs,
                                                               const kernels::Scalars& scalars) {
  runtime::RunResult result = executor.run(plan, inputs, scalars);
  return {std::move(result.outputs), {std::move(result.trace)}};
}

void bind_executor(py::module_& module) {
  public_class<NodeTrace>(module, "NodeTrace", "What one node of a run did, on the sites of this process together.")
      .def_readonly("node", &NodeTrace::node)
      .def_readonly("operation", &NodeTrace::operation)
      .def_readonly("bytes_sent", &NodeTrace::bytes_sent)
      .def_readonly("bytes_received", &NodeTrace::bytes_received)
      .def_readonly("kernel_calls", &NodeTrace::kernel_calls)
      .def_readonly("flops", &NodeTrace::flops)
      .def_readonly("seconds", &NodeTrace::seconds)
      .def_readonly("peak_bytes", &NodeTrace::peak_bytes)
      .def_readonly("site_bytes", &NodeTrace::site_bytes);
  py::class_<RunTrace>(module, "RunTrace").def("entries", [](const RunTrace& trace) { return trace.entries; });
  py::class_<Executor>(module, "Executor")
      .def(py::init<std::shared_ptr<Transport>, std::shared_ptr<BlockStore>>(), py::arg("transport"), py::arg("store"))
      .def("run", &run, py::arg("plan"), py::arg("inputs"), py::arg("scalars"), WithoutGil())
      .def("overwritten", &Executor::overwritten);
}

}  // namespace

void bind_runtime(py::module_& module) {
  py::register_local_exception_translator(&translate_torch_error);
  runtime::set_wait_check(&check_signals);
  module.def("close_process_groups", &close_process_groups);
  py::module_::import("atexit").attr("register")(module.attr("close_process_groups"));
  bind_transport(module);
  bind_stored_relation(module);
  bind_executor(module);
}

}  // namespace joinsum::bindings

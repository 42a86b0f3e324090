#include <string_view>

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include "bindings/bindings.h"
#include "optimizer/cost/cost.h"
#include "runtime/communication/transport.h"
#include "runtime/communication/watch/peer_watch.h"
#include "runtime/execution/executor.h"
#include "runtime/storage/relation.h"
#include "runtime/storage/torch_allocations.h"

namespace joinsum::bindings {
namespace {

namespace communication = runtime::communication;
namespace execution = runtime::execution;
namespace storage = runtime::storage;
using communication::Collectives;
using communication::SharedMemory;
using communication::SubGrids;
using communication::Transport;
using execution::Executor;
using execution::NodeTrace;
using storage::BlockStore;
using storage::StoredRelation;

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
  communication::close_process_groups();
}

/// Sends flat arrays, by position in `messages` as (from, to, bytes); what is received stands at the same positions.
/// `meanwhile` is called while they travel.
std::vector<std::optional<at::Tensor>> exchange(Transport& transport, const std::string& operation,
                                                const std::vector<std::tuple<int64_t, int64_t, int64_t>>& messages,
                                                const std::map<size_t, at::Tensor>& payload, const at::Tensor& like,
                                                const std::optional<py::function>& meanwhile) {
  std::vector<communication::Message> list;
  for (const auto& [from, to, bytes] : messages) list.push_back({from, to, bytes});
  const auto handle = transport.start(operation, list, like.options(), [&](size_t index) { return payload.at(index); });
  if (meanwhile) {
    const py::gil_scoped_acquire lock;
    (*meanwhile)();
  }
  std::vector<std::optional<at::Tensor>> out;
  for (at::Tensor& array : handle->wait()) {
    out.push_back(array.defined() ? std::optional(std::move(array)) : std::nullopt);
  }
  return out;
}

void bind_sub_grids(py::module_& module) {
  py::class_<SubGrids>(module, "SubGrids")
      .def(py::init<ia::Grid, Dims>(), py::arg("grid"), py::arg("axes"))
      .def_static("all", &SubGrids::all, py::arg("sites"))
      .def("groups", &SubGrids::groups);
}

void bind_collectives(py::class_<Transport, std::shared_ptr<Transport>>& transport) {
  const auto operation = py::arg("operation");
  const auto sub_grids = py::arg("sub_grids");
  const auto arrays = py::arg("arrays");
  transport.def("all_reduce", &Transport::all_reduce, operation, sub_grids, py::arg("reduction"), arrays, WithoutGil())
      .def("all_gather", &Transport::all_gather, operation, sub_grids, arrays, WithoutGil())
      .def("reduce_scatter", &Transport::reduce_scatter, operation, sub_grids, py::arg("reduction"), arrays,
           WithoutGil())
      .def("broadcast", &Transport::broadcast, operation, sub_grids, py::arg("root"), arrays, WithoutGil())
      .def("all_to_all", &Transport::all_to_all, operation, sub_grids, arrays, WithoutGil());
}

void bind_transport(py::module_& module) {
  py::enum_<Collectives>(module, "Collectives")
      .value("table", Collectives::kTable)
      .value("never", Collectives::kNever)
      .value("always", Collectives::kAlways);
  py::enum_<SharedMemory>(module, "SharedMemory")
      .value("none", SharedMemory::kNone)
      .value("some", SharedMemory::kSome)
      .value("all", SharedMemory::kAll);
  bind_sub_grids(module);
  py::class_<Transport, std::shared_ptr<Transport>> transport(module, "Transport");
  transport.def_property_readonly("name", &Transport::name)
      .def_property_readonly("sites", &Transport::sites)
      .def_property_readonly("local_sites", &Transport::local_sites)
      .def_property_readonly("shared_memory", &Transport::shared_memory)
      .def_property_readonly("own_sockets", &Transport::own_sockets)
      .def("agree", &Transport::agree, py::arg("call"), py::arg("text"), WithoutGil())
      .def("gather_texts", &Transport::gather_texts, py::arg("call"), py::arg("text"), WithoutGil())
      .def("all_reduce_max", &Transport::all_reduce_max, py::arg("values"), WithoutGil())
      .def("exchange", &exchange, py::arg("operation"), py::arg("messages"), py::arg("payload"), py::arg("like"),
           py::arg("meanwhile") = std::nullopt, WithoutGil())
      .def("progress", &Transport::progress, WithoutGil())
      .def("bytes_sent", [](const Transport& each) { return each.counters().sent; });
  bind_collectives(transport);
  module.def("make_loopback", &communication::make_loopback, py::arg("sites"));
  module.def("make_process_group", &communication::make_process_group, py::arg("group_name"),
             py::arg("timeout_seconds"), py::arg("collectives"), py::arg("share_memory"), py::arg("sockets"),
             WithoutGil());
}

/// storage::TorchAllocations from the arena of a store, as a context manager for one thread.
class TorchAllocations {
 public:
  explicit TorchAllocations(std::shared_ptr<BlockStore> store) : store_(std::move(store)) {}
  void enter() { allocations_.emplace(store_->arena()); }
  void exit(const py::args& /*error*/) { allocations_.reset(); }

 private:
  std::shared_ptr<BlockStore> store_;
  std::optional<storage::TorchAllocations> allocations_;
};

storage::Ownership ownership(bool copy) { return copy ? storage::Ownership::kCopied : storage::Ownership::kShared; }

void bind_stored_relation(py::module_& module) {
  py::class_<BlockStore, std::shared_ptr<BlockStore>>(module, "BlockStore")
      .def_property_readonly("name", &BlockStore::name)
      .def_property_readonly("bytes", &BlockStore::bytes)
      .def_property_readonly("peak_bytes", &BlockStore::peak_bytes)
      .def_property_readonly("pooled_bytes", &BlockStore::pooled_bytes)
      .def("release_pool", &BlockStore::release_pool, WithoutGil())
      .def("set_budget", &BlockStore::set_budget, py::arg("bytes"), WithoutGil());
  py::class_<TorchAllocations>(module, "TorchAllocations")
      .def(py::init<std::shared_ptr<BlockStore>>(), py::arg("store"))
      .def("__enter__", &TorchAllocations::enter)
      .def("__exit__", &TorchAllocations::exit);
  module.def("system_allocations", &storage::system_allocations);
  module.def(
      "storage_addresses",
      [](const std::vector<at::Tensor>& arrays) {
        std::vector<uintptr_t> out;
        for (const at::Tensor& array : arrays) out.push_back(reinterpret_cast<uintptr_t>(array.storage().data()));
        return out;
      },
      py::arg("arrays"));
  module.def("make_store", &storage::make_store, py::arg("name"));
  module.def("store_names", &storage::store_names);
  py::class_<StoredRelation>(module, "StoredRelation")
      .def_property_readonly(
          "type",
          [](const StoredRelation& relation) { return std::const_pointer_cast<ia::PhysicalType>(relation.type); })
      .def("tuples", &storage::tuples, WithoutGil())
      .def("blocks", &storage::block_arrays, WithoutGil())
      .def("whole_tensor", &storage::whole_tensor, py::arg("store"), WithoutGil())
      .def("shares_memory", &storage::shares_memory, py::arg("array"), WithoutGil());
  module.def(
      "place_tensor",
      [](const at::Tensor& tensor, const ia::PhysicalType& type, const std::vector<int64_t>& sites, BlockStore& store,
         bool copy) { return storage::place_tensor(tensor, type, sites, store, ownership(copy)); },
      py::arg("tensor"), py::arg("type"), py::arg("sites"), py::arg("store"), py::arg("copy"), WithoutGil());
  module.def("retyped", &storage::retyped, py::arg("relation"), py::arg("type"), py::arg("store"), WithoutGil());
  module.def("place_blocks", &storage::place_blocks, py::arg("arrays"), py::arg("type"), py::arg("sites"),
             py::arg("store"), WithoutGil());
  module.def(
      "place_tuples",
      [](const std::vector<std::pair<Key, at::Tensor>>& tuples, const ia::PhysicalType& type,
         const std::vector<int64_t>& sites, BlockStore& store,
         bool copy) { return storage::place_tuples(tuples, type, sites, store, ownership(copy)); },
      py::arg("tuples"), py::arg("type"), py::arg("sites"), py::arg("store"), py::arg("copy"), WithoutGil());
}

/// Outputs by name, and what each node did. By value: an output that Python drops is freed. If `update`, an output that
/// is tied to an input of its type becomes the value of that input's relation, and is not among those returned.
std::pair<std::map<std::string, StoredRelation>, execution::RunTrace> run(Executor& executor, const ia::Plan& plan,
                                                                          const py::dict& inputs,
                                                                          const kernels::table::Scalars& scalars,
                                                                          bool update) {
  execution::RunInputs given;
  for (const auto& [name, relation] : inputs) {
    given.emplace(py::cast<std::string_view>(name), &py::cast<const StoredRelation&>(relation));
  }
  execution::RunResult result = [&] {
    const py::gil_scoped_release without_gil;
    return executor.run(plan, given, scalars);
  }();
  for (const auto& output : plan.outputs()) {
    if (!update || !output.tied_input) continue;
    auto& input = inputs[output.tied_input->c_str()].cast<StoredRelation&>();
    const auto found = result.outputs.find(output.name);
    if (*found->second.type != *input.type) continue;
    input.sites = std::move(found->second.sites);
    result.outputs.erase(found);
  }
  return {std::move(result.outputs), std::move(result.trace)};
}

/// Schedules plans that are run for the first time from now on by the seconds that the cluster gives their nodes.
void schedule_for(Executor& executor, const optimizer::cost::Cluster& cluster) {
  executor.schedule_by([cluster](const ia::Plan& plan) { return optimizer::cost::schedule_seconds(plan, cluster); });
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
      .def_readonly("site_bytes", &NodeTrace::site_bytes)
      .def_readonly("pooled_bytes", &NodeTrace::pooled_bytes);
  py::class_<execution::RunTrace>(module, "RunTrace").def("entries", &execution::RunTrace::entries);
  py::class_<Executor>(module, "Executor")
      .def(py::init<std::shared_ptr<Transport>, std::shared_ptr<BlockStore>>(), py::arg("transport"), py::arg("store"))
      .def("run", &run, py::arg("plan"), py::arg("inputs"), py::arg("scalars"), py::arg("update") = false)
      .def("schedule_for", &schedule_for, py::arg("cluster"), WithoutGil())
      .def(
          "executable_text", [](Executor& executor, const ia::Plan& plan) { return executor.executable(plan)->text(); },
          py::arg("plan"), WithoutGil())
      .def("overwritten", &Executor::overwritten);
}

}  // namespace

void bind_runtime(py::module_& module) {
  py::register_local_exception_translator(&translate_torch_error);
  communication::watch::set_wait_check(&check_signals);
  module.def("close_process_groups", &close_process_groups);
  py::module_::import("atexit").attr("register")(module.attr("close_process_groups"));
  bind_transport(module);
  bind_stored_relation(module);
  bind_executor(module);
}

}  // namespace joinsum::bindings

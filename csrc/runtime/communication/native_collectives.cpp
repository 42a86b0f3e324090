#include "runtime/communication/native_collectives.h"

#include <algorithm>

#include "base/check.h"
#include "base/dims.h"
#include "kernels/dense/dense.h"
#include "kernels/table/table.h"

namespace joinsum::runtime::communication {
namespace {

struct BackendRow {
  const char* name;
  bool collectives_are_faster;  ///< than messages
  bool has_reduce_scatter;      ///< one whose Work reports when it is complete
  bool background_all_reduce;   ///< one that is faster than messages while the sites compute
};
/// On Gloo's sockets neither is faster throughout (2 ranks, 4 KiB to 64 MiB), through shared memory messages are (but
/// for an all-reduce of 64 MiB, which takes as long), and messages reduce in the order of the sites. Gloo's
/// reduce-scatter is an all-reduce whose Work is complete only after a wait, which cannot be watched. While the sites
/// compute, the second stage of messages waits for them, and Gloo's all-reduce does not.
constexpr BackendRow kBackends[] = {{"gloo", false, false, true}, {"nccl", true, true, true}};

const BackendRow* find_backend(const std::string& name) {
  for (const BackendRow& row : kBackends) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

struct NativeReduction {
  c10d::ReduceOp::RedOpType operation;
  bool floats;  ///< c10d's min and max drop NaNs, which the kernels propagate
};

/// c10d's reduction by the kernel `name`, if it has one.
std::optional<NativeReduction> native_reduction(const std::string& name) {
  const kernels::table::Row* row = kernels::table::find_row(name);
  if (row == nullptr || !row->reduces_by) return std::nullopt;
  switch (*row->reduces_by) {
    case kernels::semiring::Reduction::kAdd:
      return NativeReduction{c10d::ReduceOp::SUM, true};
    case kernels::semiring::Reduction::kMul:
      return NativeReduction{c10d::ReduceOp::PRODUCT, true};
    case kernels::semiring::Reduction::kMin:
      return NativeReduction{c10d::ReduceOp::MIN, false};
    case kernels::semiring::Reduction::kMax:
      return NativeReduction{c10d::ReduceOp::MAX, false};
    case kernels::semiring::Reduction::kLogAddExp:
      return std::nullopt;
  }
  JOINSUM_CHECK(false, "kernel=", name);
}

/// Longer than any wait: PeerWatch ends waits for lost peers.
constexpr auto kNoTimeout = std::chrono::hours(24);

/// The same for arrays of `type`.
std::optional<NativeReduction> native_reduction(const std::string& kernel, at::ScalarType type) {
  constexpr at::ScalarType integers[] = {at::kByte, at::kChar, at::kInt, at::kLong};
  constexpr at::ScalarType floats[] = {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble};
  const bool is_float = std::find(std::begin(floats), std::end(floats), type) != std::end(floats);
  if (!is_float && std::find(std::begin(integers), std::end(integers), type) == std::end(integers)) return std::nullopt;
  const auto found = native_reduction(kernel);
  return found && is_float && !found->floats ? std::nullopt : found;
}

bool reduces(Collective collective) {
  return collective == Collective::kAllReduce || collective == Collective::kReduceScatter;
}

c10d::ReduceOp::RedOpType operation_of(const CollectiveCall& call, const at::Tensor& array) {
  const auto reduction = native_reduction(call.reduction, array.scalar_type());
  JOINSUM_CHECK(reduction, "the backend has no such reduction: reduction=", call.reduction);
  return reduction->operation;
}

NativeCollective all_gather(c10d::Backend& backend, const CollectiveCall& call, const at::Tensor& array) {
  std::vector<int64_t> shape = array.sizes().vec();
  shape.insert(shape.begin(), static_cast<int64_t>(call.group.size()));
  at::Tensor result = at::empty(shape, array.options());
  at::Tensor to = kernels::dense::bytes_of(result);
  at::Tensor from = kernels::dense::bytes_of(array);
  c10d::AllgatherOptions options;
  options.timeout = kNoTimeout;
  return {backend._allgather_base(to, from, options), result};
}

NativeCollective reduce_scatter(c10d::Backend& backend, const CollectiveCall& call, const at::Tensor& array) {
  at::Tensor result = at::empty(array.sizes().slice(1), array.options());
  at::Tensor to = result.view({-1});
  at::Tensor from = array.clone().view({-1});  // a backend may use its argument as scratch memory
  c10d::ReduceScatterOptions options;
  options.reduceOp = operation_of(call, array);
  options.timeout = kNoTimeout;
  return {backend._reduce_scatter_base(to, from, options), result};
}

NativeCollective broadcast(c10d::Backend& backend, const CollectiveCall& call, const at::Tensor& array) {
  const bool is_root = call.group[call.root] == backend.getRank();
  at::Tensor result = is_root ? array : at::empty_like(array);
  std::vector<at::Tensor> buffers{kernels::dense::bytes_of(result)};
  c10d::BroadcastOptions options;
  options.rootRank = call.group[call.root];
  options.timeout = kNoTimeout;
  return {backend.broadcast(buffers, options), result};
}

}  // namespace

bool uses_native(Collectives policy, const std::string& backend, const CollectiveCall& call, at::ScalarType type) {
  if (reduces(call.collective) && !native_reduction(call.reduction, type)) return false;
  const BackendRow* row = find_backend(backend);
  if (row == nullptr || (call.collective == Collective::kReduceScatter && !row->has_reduce_scatter)) return false;
  return policy == Collectives::kTable ? row->collectives_are_faster : policy == Collectives::kAlways;
}

bool uses_native_in_background(Collectives policy, const std::string& backend, const CollectiveCall& call,
                               at::ScalarType type) {
  if (uses_native(policy, backend, call, type)) return true;
  const BackendRow* row = find_backend(backend);
  return policy == Collectives::kTable && row != nullptr && call.collective == Collective::kAllReduce &&
         native_reduction(call.reduction, type) && row->background_all_reduce;
}

NativeCollective start_all_reduce_in_place(c10d::Backend& backend, const CollectiveCall& call,
                                           const at::Tensor& array) {
  std::vector<at::Tensor> buffers{array};
  c10d::AllreduceOptions options;
  options.reduceOp = operation_of(call, array);
  options.timeout = kNoTimeout;
  return {backend.allreduce(buffers, options), array};
}

NativeCollective start_native(c10d::Backend& backend, const CollectiveCall& call, const at::Tensor& array) {
  const at::Tensor contiguous = array.resolve_conj().resolve_neg().contiguous();
  switch (call.collective) {
    case Collective::kAllReduce:
      return start_all_reduce_in_place(backend, call, contiguous.clone());
    case Collective::kAllGather:
      return all_gather(backend, call, contiguous);
    case Collective::kReduceScatter:
      return reduce_scatter(backend, call, contiguous);
    case Collective::kBroadcast:
      return broadcast(backend, call, contiguous);
  }
  JOINSUM_CHECK(false, "no such collective");
}

Counters message_bytes(const CollectiveCall& call, const at::Tensor& array, int64_t rank) {
  const auto peers = static_cast<int64_t>(call.group.size()) - 1;
  const auto bytes = static_cast<int64_t>(array.nbytes());
  switch (call.collective) {
    case Collective::kAllReduce: {
      const int64_t elements = array.numel();
      const int64_t chunk = part_begin(elements, peers + 1, rank + 1) - part_begin(elements, peers + 1, rank);
      const int64_t moved = (elements - chunk + peers * chunk) * array.element_size();
      return {moved, moved};
    }
    case Collective::kAllGather:
      return {peers * bytes, peers * bytes};
    case Collective::kReduceScatter:
      return {peers * (bytes / (peers + 1)), peers * (bytes / (peers + 1))};
    case Collective::kBroadcast:
      return rank == call.root ? Counters{peers * bytes, 0} : Counters{0, bytes};
  }
  JOINSUM_CHECK(false, "no such collective");
}

}  // namespace joinsum::runtime::communication

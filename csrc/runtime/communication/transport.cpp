#include "runtime/communication/transport.h"

#include <c10/core/GradMode.h>

#include "base/check.h"
#include "kernels/dense/dense.h"

namespace joinsum::runtime::communication {
namespace {

/// Elements of the chunk that one site of a group sends to another one, by their positions in the group.
using ChunkElements = std::function<int64_t(int64_t from, int64_t to)>;
/// The chunk that a local site sends to a position of its group.
using Chunk = std::function<at::Tensor(size_t local, int64_t to)>;
/// Chunks by local site and by position of their sender, a site's own among them; flat.
using ReceivedChunks = std::vector<std::vector<at::Tensor>>;

at::Tensor reduce(const std::string& reduction, const std::vector<at::Tensor>& terms) {
  at::Tensor result = terms[0];
  if (result.numel() == 0) return result;
  for (size_t i = 1; i < terms.size(); ++i) {
    const at::Tensor out = i > 1 ? result : at::Tensor();
    result = kernels::dense::run({reduction, {}}, {result, terms[i]}, {}, 0, 0, out);
  }
  return result;
}

/// One call of a collective on all groups of some sub-grids.
class GroupCall {
 public:
  GroupCall(Transport& transport, const std::string& operation, const SubGrids& sub_grids, const LocalArrays& arrays)
      : transport_(transport), operation_(operation), groups_(sub_grids.groups()), ranks_(transport.sites()) {
    JOINSUM_USER_CHECK(sub_grids.grid.sites() == transport.sites(), operation,
                       ": grid has another number of sites: grid=", sub_grids.grid.text(),
                       ", sites=", transport.sites());
    JOINSUM_USER_CHECK(arrays.size() == transport.local_sites().size(), operation,
                       ": one array for each site of this process: arrays=", arrays.size(),
                       ", sites=", transport.local_sites().size());
    for (const at::Tensor& array : arrays) {
      JOINSUM_USER_CHECK(array.sizes() == arrays[0].sizes() && array.dtype() == arrays[0].dtype(), operation,
                         ": arrays of sites differ: first=", arrays[0].sizes(), " ", arrays[0].dtype(),
                         ", other=", array.sizes(), " ", array.dtype());
      arrays_.push_back(array.detach());
    }
    for (size_t group = 0; group < groups_.size(); ++group) {
      for (size_t rank = 0; rank < groups_[group].size(); ++rank)
        ranks_[groups_[group][rank]] = {group, static_cast<int64_t>(rank)};
    }
  }

  const LocalArrays& arrays() const { return arrays_; }
  int64_t group_size() const { return static_cast<int64_t>(groups_[0].size()); }
  int64_t rank(size_t local) const { return ranks_[transport_.local_sites()[local]].second; }

  /// Checks that arrays have one entry for each site of a group.
  void check_entries() const {
    JOINSUM_USER_CHECK(arrays_[0].dim() > 0 && arrays_[0].size(0) == group_size(), operation_,
                       ": the first axis has one entry for each site of a group: array=", arrays_[0].sizes(),
                       ", group size=", group_size());
  }

  /// The result of the backend's own collective, where this process has one site and the backend is the faster.
  std::optional<LocalArrays> native(Collective collective, const std::string& reduction = {}, int64_t root = 0) const {
    if (arrays_.size() != 1 || group_size() == 1) return std::nullopt;
    const size_t group = ranks_[transport_.local_sites()[0]].first;
    const auto result = transport_.native({collective, operation_, groups_[group], reduction, root}, arrays_[0]);
    return result ? std::optional(LocalArrays{*result}) : std::nullopt;
  }

  ReceivedChunks exchange(const ChunkElements& elements, const Chunk& chunk) const {
    const auto element_bytes = static_cast<int64_t>(arrays_[0].element_size());
    std::vector<Message> messages;
    for (const auto& group : groups_) {
      for (size_t from = 0; from < group.size(); ++from) {
        for (size_t to = 0; to < group.size(); ++to) {
          if (from == to) continue;
          const int64_t count = elements(static_cast<int64_t>(from), static_cast<int64_t>(to));
          if (count > 0) messages.push_back({group[from], group[to], count * element_bytes});
        }
      }
    }
    const auto locals = local_positions();
    std::vector<at::Tensor> arrived;
    if (!messages.empty()) {
      const auto payload = [&](size_t i) {
        return chunk(locals[messages[i].from], ranks_[messages[i].to].second).reshape({-1});
      };
      arrived = transport_.start(operation_, messages, arrays_[0].options(), payload)->wait();
    }
    ReceivedChunks received(arrays_.size());
    for (size_t local = 0; local < arrays_.size(); ++local) {
      received[local].assign(group_size(), at::empty({0}, arrays_[0].options()));
      received[local][rank(local)] = chunk(local, rank(local)).reshape({-1});
    }
    for (size_t i = 0; i < messages.size(); ++i) {
      if (arrived[i].defined()) received[locals[messages[i].to]][ranks_[messages[i].from].second] = arrived[i];
    }
    return received;
  }

 private:
  std::vector<size_t> local_positions() const {
    std::vector<size_t> positions(transport_.sites());
    for (size_t local = 0; local < arrays_.size(); ++local) positions[transport_.local_sites()[local]] = local;
    return positions;
  }

  Transport& transport_;
  const std::string& operation_;
  std::vector<std::vector<int64_t>> groups_;
  std::vector<std::pair<size_t, int64_t>> ranks_;  ///< each site's group, and its position there
  LocalArrays arrays_;
};

/// [a, b, ...] becomes [b, ...].
at::IntArrayRef entry_shape(const at::Tensor& array) { return array.sizes().slice(1); }

}  // namespace

SubGrids SubGrids::all(int64_t sites) {
  SubGrids out{ia::Grid::of_sites(sites), {}};
  out.axes = all_dims(out.grid.rank());
  return out;
}

std::vector<std::vector<int64_t>> SubGrids::groups() const {
  Dims others;
  for (int64_t axis = 0; axis < grid.rank(); ++axis) {
    if (!position_of(axes, axis)) others.push_back(axis);
  }
  for (const int64_t axis : axes)
    JOINSUM_USER_CHECK(axis >= 0 && axis < grid.rank(), "collective: no such grid axis: axis=", axis,
                       ", grid=", grid.text());
  std::vector<std::vector<int64_t>> out;
  for (auto& [number, sites] : grid.classes(others)) out.push_back(std::move(sites));
  return out;
}

LocalArrays Transport::all_reduce(const std::string& operation, const SubGrids& sub_grids, const std::string& reduction,
                                  const LocalArrays& arrays) {
  const c10::NoGradGuard no_grad;
  const GroupCall call(*this, operation, sub_grids, arrays);
  if (auto result = call.native(Collective::kAllReduce, reduction)) return *result;
  // Each site reduces one chunk of all the group's arrays, and the others gather it.
  const int64_t count = call.arrays()[0].numel();
  const int64_t size = call.group_size();
  const auto begin = [&](int64_t rank) { return part_begin(count, size, rank); };
  const auto elements = [&](int64_t rank) { return begin(rank + 1) - begin(rank); };
  const auto terms = call.exchange(
      [&](int64_t, int64_t to) { return elements(to); },
      [&](size_t local, int64_t to) { return call.arrays()[local].reshape({-1}).narrow(0, begin(to), elements(to)); });
  LocalArrays reduced;
  for (const auto& each : terms) reduced.push_back(reduce(reduction, each));
  const auto chunks = call.exchange([&](int64_t from, int64_t) { return elements(from); },
                                    [&](size_t local, int64_t) { return reduced[local]; });
  LocalArrays out;
  for (const auto& each : chunks) out.push_back(at::cat(each).reshape(call.arrays()[0].sizes()));
  return out;
}

LocalArrays Transport::all_gather(const std::string& operation, const SubGrids& sub_grids, const LocalArrays& arrays) {
  const c10::NoGradGuard no_grad;
  const GroupCall call(*this, operation, sub_grids, arrays);
  if (auto result = call.native(Collective::kAllGather)) return *result;
  const int64_t count = call.arrays()[0].numel();
  const auto received = call.exchange([&](int64_t, int64_t) { return count; },
                                      [&](size_t local, int64_t) { return call.arrays()[local]; });
  std::vector<int64_t> shape = call.arrays()[0].sizes().vec();
  shape.insert(shape.begin(), call.group_size());
  LocalArrays out;
  for (const auto& each : received) out.push_back(at::cat(each).reshape(shape));
  return out;
}

LocalArrays Transport::reduce_scatter(const std::string& operation, const SubGrids& sub_grids,
                                      const std::string& reduction, const LocalArrays& arrays) {
  const c10::NoGradGuard no_grad;
  const GroupCall call(*this, operation, sub_grids, arrays);
  call.check_entries();
  if (auto result = call.native(Collective::kReduceScatter, reduction)) return *result;
  const int64_t count = call.arrays()[0].numel() / call.group_size();
  const auto terms = call.exchange([&](int64_t, int64_t) { return count; },
                                   [&](size_t local, int64_t to) { return call.arrays()[local].select(0, to); });
  LocalArrays out;
  for (const auto& each : terms) out.push_back(reduce(reduction, each).reshape(entry_shape(call.arrays()[0])));
  return out;
}

LocalArrays Transport::broadcast(const std::string& operation, const SubGrids& sub_grids, int64_t root,
                                 const LocalArrays& arrays) {
  const c10::NoGradGuard no_grad;
  const GroupCall call(*this, operation, sub_grids, arrays);
  JOINSUM_USER_CHECK(root >= 0 && root < call.group_size(), operation, ": no such site in a group: root=", root,
                     ", group size=", call.group_size());
  if (auto result = call.native(Collective::kBroadcast, {}, root)) return *result;
  const int64_t count = call.arrays()[0].numel();
  const auto received = call.exchange([&](int64_t from, int64_t) { return from == root ? count : 0; },
                                      [&](size_t local, int64_t) { return call.arrays()[local]; });
  LocalArrays out;
  for (const auto& each : received) out.push_back(each[root].reshape(call.arrays()[0].sizes()));
  return out;
}

LocalArrays Transport::all_to_all(const std::string& operation, const SubGrids& sub_grids, const LocalArrays& arrays) {
  const c10::NoGradGuard no_grad;
  const GroupCall call(*this, operation, sub_grids, arrays);
  call.check_entries();
  const int64_t count = call.arrays()[0].numel() / call.group_size();
  const auto received = call.exchange([&](int64_t, int64_t) { return count; },
                                      [&](size_t local, int64_t to) { return call.arrays()[local].select(0, to); });
  LocalArrays out;
  for (const auto& each : received) out.push_back(at::cat(each).reshape(call.arrays()[0].sizes()));
  return out;
}

void Transport::agree(const std::string& call, const std::string& text) {
  agree_on(call, hash_text(text), [&] { return text; });
}

}  // namespace joinsum::runtime::communication

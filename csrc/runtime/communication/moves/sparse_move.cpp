#include "runtime/communication/moves/sparse_move.h"

#include <algorithm>

#include "kernels/dense/dense.h"
#include "runtime/storage/sparse_array.h"

namespace joinsum::runtime::communication::moves {

using ia::analysis::Transfer;
using storage::Piece;

storage::StoredRelation move_sparse(const MoveOf& of, Transport& transport, storage::BlockStore& store) {
  const PreparedMove& move = of.move;
  const relation::RelationType& relation = move.source.relation;
  const storage::Layout layout(relation);
  const std::vector<Transfer>& transfers = move.exchange.copy;
  const at::ScalarType dtype = kernels::dense::scalar_type(relation.dtype);
  JOINSUM_CHECK(move.exchange.reduction.empty(), "a sparse relation is pending: ", move.source.text());

  std::map<int64_t, std::vector<Piece>> held;
  for (const auto& [site, boxes] : move.source_boxes) held[site] = storage::pieces_of(boxes, of.source.sites.at(site));
  std::vector<at::Tensor> payloads(transfers.size());
  std::vector<Message> sizes;
  for (size_t i = 0; i < transfers.size(); ++i) {
    const Transfer& t = transfers[i];
    sizes.push_back({t.from, t.to, static_cast<int64_t>(sizeof(int64_t))});
    const auto at = held.find(t.from);
    if (at == held.end()) continue;
    for (const Piece& piece : at->second) {
      if (!piece.box.contains(t.box)) continue;
      payloads[i] = storage::to_bytes(storage::Pin(layout.slice(piece.block, piece.box, t.box)).array());
      break;
    }
    JOINSUM_CHECK(payloads[i].defined(), "site ", t.from, " does not hold ", t.box.text());
  }
  const auto size_of = [&](size_t i) { return at::full({1}, payloads[i].numel(), at::kLong); };
  const auto received_sizes =
      transport.start(move.operation, sizes, at::TensorOptions().dtype(at::kLong), size_of)->wait();
  std::vector<Message> messages;
  for (size_t i = 0; i < transfers.size(); ++i) {
    const int64_t bytes = payloads[i].defined()         ? payloads[i].numel()
                          : received_sizes[i].defined() ? received_sizes[i].item<int64_t>()
                                                        : 0;
    messages.push_back({transfers[i].from, transfers[i].to, bytes});
  }
  const auto payload_of = [&](size_t i) { return payloads[i]; };
  const auto arrived =
      transport.start(move.operation, messages, at::TensorOptions().dtype(at::kByte), payload_of)->wait();
  for (size_t i = 0; i < transfers.size(); ++i) {
    const Transfer& t = transfers[i];
    if (!held.contains(t.to)) continue;
    at::Tensor array = storage::from_bytes(arrived[i], layout.shape(t.box), dtype);
    held[t.to].push_back({t.box, store.put(std::move(array))});
  }

  storage::StoredRelation out{move.target, {}};
  const at::TensorOptions options = at::TensorOptions().dtype(dtype);
  for (const auto& [site, pieces] : held) {
    const std::vector<Box>& boxes = move.target_boxes.at(site);
    std::vector<Piece> needed;
    for (const Piece& piece : pieces) {
      const bool used =
          std::any_of(boxes.begin(), boxes.end(), [&](const Box& box) { return !box.intersect(piece.box).empty(); });
      if (used) needed.push_back(piece);
    }
    out.sites[site] = storage::assemble(relation, boxes, needed, options, store);
  }
  return out;
}

}  // namespace joinsum::runtime::communication::moves

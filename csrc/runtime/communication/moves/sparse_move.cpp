#include "runtime/communication/moves/sparse_move.h"

#include <algorithm>
#include <tuple>

#include "kernels/dense/dense.h"
#include "kernels/sparse/arrays.h"
#include "runtime/storage/sparse_array.h"

namespace joinsum::runtime::communication::moves {
namespace {

using ia::analysis::Share;
using ia::analysis::Transfer;
using storage::Piece;

/// The entries of a part of a box, in an array of the box's shape.
struct Chunk {
  Box box;
  int64_t begin = 0;
  int64_t end = 0;
  at::Tensor entries;
};

class SparseMove {
 public:
  SparseMove(const MoveOf& of, Transport& transport, storage::BlockStore& store)
      : move_(of.move),
        relation_(move_.source.relation),
        layout_(relation_),
        dtype_(kernels::dense::scalar_type(relation_.dtype)),
        transport_(transport),
        store_(store) {
    for (const auto& [site, boxes] : move_.source_boxes) {
      held_[site] = storage::pieces_of(boxes, of.source.sites.at(site));
    }
  }

  storage::StoredRelation run() {
    if (!move_.exchange.reduction.empty()) reduce();
    copy();
    storage::StoredRelation out{move_.target, {}};
    for (const auto& [site, pieces] : held_) {
      const std::vector<Box>& boxes = move_.target_boxes.at(site);
      std::vector<Piece> needed;
      for (const Piece& piece : pieces) {
        const bool used =
            std::any_of(boxes.begin(), boxes.end(), [&](const Box& box) { return !box.intersect(piece.box).empty(); });
        if (used) needed.push_back(piece);
      }
      out.sites[site] = storage::assemble(relation_, boxes, needed, at::TensorOptions().dtype(dtype_), store_);
    }
    return out;
  }

 private:
  /// The site of each share reduces it, in the order of its holders, and sends it to those that need it, too.
  void reduce() {
    const ia::analysis::Exchange& exchange = move_.exchange;
    const std::vector<at::Tensor> partials =
        sent(exchange.reduce, [&](const Transfer& t) { return held(t.from, t.box, t.begin, t.end); });
    std::map<int64_t, std::vector<Chunk>> chunks;
    for (const Share& share : exchange.shares) {
      if (!held_.contains(share.site)) continue;
      std::vector<at::Tensor> terms;
      for (const int64_t holder : share.holders) {
        if (holder == share.site) {
          terms.push_back(held(holder, share.box, share.begin, share.end));
          continue;
        }
        const Transfer wanted{holder, share.site, share.box, share.begin, share.end};
        const auto found = std::find(exchange.reduce.begin(), exchange.reduce.end(), wanted);
        if (found != exchange.reduce.end()) terms.push_back(partials[found - exchange.reduce.begin()]);
      }
      if (terms.empty()) continue;  // no elements
      chunks[share.site].push_back(
          {share.box, share.begin, share.end, kernels::sparse::folded(terms, exchange.reduction)});
    }
    const std::vector<at::Tensor> gathered = sent(exchange.gather, [&](const Transfer& t) {
      for (const Chunk& chunk : chunks.at(t.from)) {
        if (chunk.box == t.box && chunk.begin == t.begin && chunk.end == t.end) return chunk.entries;
      }
      JOINSUM_CHECK(false, "a share to gather was not reduced");
    });
    for (size_t i = 0; i < gathered.size(); ++i) {
      const Transfer& t = exchange.gather[i];
      if (held_.contains(t.to)) chunks[t.to].push_back({t.box, t.begin, t.end, gathered[i]});
    }
    for (auto& [site, pieces] : held_) pieces = joined(std::move(chunks[site]));
  }

  /// One piece for each box.
  std::vector<Piece> joined(std::vector<Chunk> chunks) const {
    std::sort(chunks.begin(), chunks.end(),
              [](const Chunk& a, const Chunk& b) { return std::tie(a.box, a.begin) < std::tie(b.box, b.begin); });
    std::vector<Piece> pieces;
    for (size_t i = 0; i < chunks.size();) {
      const Box& box = chunks[i].box;
      std::vector<std::pair<Dims, at::Tensor>> parts;
      const Dims shape = layout_.shape(box);
      for (; i < chunks.size() && chunks[i].box == box; ++i) parts.emplace_back(Dims(shape.size()), chunks[i].entries);
      pieces.push_back(
          {box, store_.put(parts.size() == 1 ? parts.front().second : storage::put_together(parts, shape, dtype_))});
    }
    return pieces;
  }

  void copy() {
    const std::vector<Transfer>& transfers = move_.exchange.copy;
    const std::vector<at::Tensor> arrived =
        sent(transfers, [&](const Transfer& t) { return held(t.from, t.box, t.begin, t.end); });
    for (size_t i = 0; i < transfers.size(); ++i) {
      const Transfer& t = transfers[i];
      if (held_.contains(t.to)) held_[t.to].push_back({t.box, store_.put(arrived[i])});
    }
  }

  /// What `site` holds of `box`: the elements [begin, end).
  at::Tensor held(int64_t site, const Box& box, int64_t begin, int64_t end) const {
    for (const Piece& piece : held_.at(site)) {
      if (!piece.box.contains(box)) continue;
      return storage::entries_between(storage::Pin(layout_.slice(piece.block, piece.box, box)).array(), begin, end);
    }
    JOINSUM_CHECK(false, "site ", site, " does not hold ", box.text());
  }

  /// Sends what `payload` gives for each transfer that leaves this process, and returns what arrives here.
  template <class Payload>
  std::vector<at::Tensor> sent(const std::vector<Transfer>& transfers, const Payload& payload) {
    std::vector<at::Tensor> payloads(transfers.size());
    std::vector<Message> sizes;
    for (size_t i = 0; i < transfers.size(); ++i) {
      const Transfer& t = transfers[i];
      sizes.push_back({t.from, t.to, static_cast<int64_t>(sizeof(int64_t))});
      if (held_.contains(t.from)) payloads[i] = storage::to_bytes(payload(t));
    }
    const auto size_of = [&](size_t i) { return at::full({1}, payloads[i].numel(), at::kLong); };
    const auto received_sizes =
        transport_.start(move_.operation, sizes, at::TensorOptions().dtype(at::kLong), size_of)->wait();
    std::vector<Message> messages;
    for (size_t i = 0; i < transfers.size(); ++i) {
      const int64_t bytes = payloads[i].defined()         ? payloads[i].numel()
                            : received_sizes[i].defined() ? received_sizes[i].template item<int64_t>()
                                                          : 0;
      messages.push_back({transfers[i].from, transfers[i].to, bytes});
    }
    const auto payload_of = [&](size_t i) { return payloads[i]; };
    const auto arrived =
        transport_.start(move_.operation, messages, at::TensorOptions().dtype(at::kByte), payload_of)->wait();
    std::vector<at::Tensor> out(transfers.size());
    for (size_t i = 0; i < transfers.size(); ++i) {
      const Transfer& t = transfers[i];
      if (held_.contains(t.to)) out[i] = storage::from_bytes(arrived[i], layout_.shape(t.box), dtype_);
    }
    return out;
  }

  const PreparedMove& move_;
  const relation::RelationType& relation_;
  storage::Layout layout_;
  at::ScalarType dtype_;
  Transport& transport_;
  storage::BlockStore& store_;
  std::map<int64_t, std::vector<Piece>> held_;
};

}  // namespace

storage::StoredRelation move_sparse(const MoveOf& of, Transport& transport, storage::BlockStore& store) {
  return SparseMove(of, transport, store).run();
}

}  // namespace joinsum::runtime::communication::moves

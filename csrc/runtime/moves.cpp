#include "runtime/moves.h"

#include <algorithm>
#include <map>
#include <set>

#include "kernels/dense.h"

namespace joinsum::runtime {
namespace {

using ia::Exchange;
using ia::Share;
using ia::Transfer;

/// A part of a box's array: its elements [begin, end), flat unless it is all of them.
struct Chunk {
  Box box;
  int64_t begin = 0;
  int64_t end = 0;
  at::Tensor array;
};

using ChunksBySite = std::map<int64_t, std::vector<Chunk>>;

class Mover {
 public:
  Mover(const std::string& who, const StoredRelation& source, Transport& transport, BlockStore& store,
        ReceivedBytes& received)
      : who_(who),
        type_(source.type),
        layout_(type_.relation),
        transport_(transport),
        store_(store),
        received_(received) {
    for (const int64_t site : transport.local_sites()) held_[site] = pieces_at(source, site, store);
    options_ = at::TensorOptions().dtype(kernels::scalar_type(type_.relation.dtype));
    for (const auto& [site, pieces] : held_) {
      if (!pieces.empty()) options_ = pieces.front().array.options();
    }
  }

  /// Folds pending partials; afterwards sites hold what `exchange.settled` says.
  void settle(const Exchange& exchange) {
    if (all_reduce(exchange)) return;
    const auto partials =
        deliver(exchange.reduce, [&](const Transfer& t) { return cut(t.from, t.box, t.begin, t.end); });
    std::map<int64_t, std::vector<Chunk>> folded;
    for (const Share& share : exchange.shares) {
      if (held_.contains(share.site)) folded[share.site].push_back(fold(exchange, share, partials));
    }
    const auto gathered = deliver(exchange.gather, [&](const Transfer& t) {
      for (const Chunk& chunk : folded.at(t.from)) {
        if (chunk.box == t.box && chunk.begin == t.begin && chunk.end == t.end) return chunk.array;
      }
      JOINSUM_CHECK(false, "a share to gather was not folded");
    });
    for (size_t i = 0; i < exchange.gather.size(); ++i) {
      const Transfer& t = exchange.gather[i];
      if (held_.contains(t.to)) folded[t.to].push_back({t.box, t.begin, t.end, gathered[i]});
    }
    for (auto& [site, pieces] : held_) pieces = join_chunks(folded[site]);
  }

  /// Brings what the sites miss of `target`.
  void copy(const Exchange& exchange) {
    const auto arrays = deliver(exchange.copy, [&](const Transfer& t) { return cut(t.from, t.box, t.begin, t.end); });
    std::map<int64_t, std::vector<std::pair<int64_t, Piece>>> arrived;
    for (auto& [site, pieces] : held_) {
      for (const Piece& piece : pieces) arrived[site].emplace_back(site, piece);
    }
    for (size_t i = 0; i < exchange.copy.size(); ++i) {
      const Transfer& t = exchange.copy[i];
      if (!held_.contains(t.to)) continue;
      for (Piece& piece : unpack(t, arrays[i])) arrived[t.to].emplace_back(t.from, std::move(piece));
    }
    for (auto& [site, pieces] : arrived) {
      std::stable_sort(pieces.begin(), pieces.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
      held_[site].clear();
      for (auto& [from, piece] : pieces) held_[site].push_back(std::move(piece));
    }
  }

  StoredRelation store(const ia::PhysicalType& target, BlockStore& store) const {
    StoredRelation out{target, {}};
    std::map<std::vector<int64_t>, std::vector<BlockHandle>> shared;
    for (const auto& [site, pieces] : held_) {
      const auto boxes = target.stored(site);
      std::vector<Piece> needed;
      std::copy_if(pieces.begin(), pieces.end(), std::back_inserter(needed), [&](const Piece& piece) {
        return std::any_of(boxes.begin(), boxes.end(),
                           [&](const Box& box) { return !box.intersect(piece.box).empty(); });
      });
      std::stable_sort(needed.begin(), needed.end(), [](const Piece& a, const Piece& b) { return a.box < b.box; });
      auto key = identity_of(needed);
      for (const Box& box : boxes) {
        key.insert(key.end(), box.lower.begin(), box.lower.end());
        key.insert(key.end(), box.upper.begin(), box.upper.end());
      }
      const auto [at, fresh] = shared.try_emplace(key);
      if (fresh) {
        for (at::Tensor& array : assemble(target.relation, boxes, needed, options_))
          at->second.push_back(store.put(std::move(array)));
      }
      out.sites[site] = at->second;
    }
    return out;
  }

 private:
  template <class Payload>
  std::vector<at::Tensor> deliver(const std::vector<Transfer>& transfers, const Payload& payload) const {
    if (transfers.empty()) return {};
    std::vector<Message> messages;
    messages.reserve(transfers.size());
    ReceivedBytes stage;
    for (const Transfer& t : transfers) {
      messages.push_back({t.from, t.to, t.elements()});
      if (held_.contains(t.to)) stage[t.to] += t.elements() * byte_size(type_.relation.dtype);
    }
    for (const auto& [site, bytes] : stage) received_[site] = std::max(received_[site], bytes);
    return transport_.start(who_, messages, options_, [&](size_t i) { return payload(transfers[i]); })->wait();
  }

  /// Elements [begin, end) of what `site` holds of `box`, tuples of a repeated key one after another.
  at::Tensor cut(int64_t site, const Box& box, int64_t begin, int64_t end) const {
    std::vector<at::Tensor> found;
    for (const Piece& piece : held_.at(site)) {
      if (piece.box.contains(box)) found.push_back(layout_.slice(piece.array, piece.box, box));
    }
    JOINSUM_CHECK(!found.empty(), "site ", site, " does not hold ", box.text());
    if (found.size() == 1 && begin == 0 && end == found[0].numel()) return found[0];
    for (at::Tensor& array : found) array = array.reshape({-1});
    const at::Tensor flat = found.size() == 1 ? found[0] : at::cat(found);
    return flat.narrow(0, begin, end - begin);
  }

  Chunk fold(const Exchange& exchange, const Share& share, const std::vector<at::Tensor>& partials) const {
    std::vector<at::Tensor> terms;
    size_t next = 0;
    for (const int64_t holder : share.holders) {
      if (holder == share.site) {
        terms.push_back(cut(holder, share.box, share.begin, share.end));
        continue;
      }
      if (share.begin == share.end) continue;
      const Transfer wanted{holder, share.site, share.box, share.begin, share.end};
      while (!(exchange.reduce[next] == wanted)) ++next;
      terms.push_back(partials[next]);
    }
    if (terms.empty()) terms.push_back(at::empty({0}, options_));
    at::Tensor sum = terms[0];
    for (size_t i = 1; i < terms.size(); ++i) {
      const at::Tensor term = terms[i].reshape(sum.sizes());
      const at::Tensor into = i > 1 ? sum : store_.allocate(sum.sizes(), sum.options());
      sum = kernels::dense({exchange.fold, {}}, {sum, term}, {}, 0, 0, into);
    }
    return {share.box, share.begin, share.end, sum};
  }

  /// Puts the chunks of each box together.
  std::vector<Piece> join_chunks(std::vector<Chunk> chunks) const {
    std::sort(chunks.begin(), chunks.end(),
              [](const Chunk& a, const Chunk& b) { return std::tie(a.box, a.begin) < std::tie(b.box, b.begin); });
    std::vector<Piece> pieces;
    for (size_t i = 0; i < chunks.size();) {
      std::vector<at::Tensor> parts;
      const Box& box = chunks[i].box;
      for (; i < chunks.size() && chunks[i].box == box; ++i) parts.push_back(chunks[i].array);
      pieces.push_back({box, together(parts, layout_.shape(box))});
    }
    return pieces;
  }

  /// Sites that receive the same chunks share the array made of them.
  at::Tensor together(std::vector<at::Tensor>& parts, const Dims& shape) const {
    if (parts.size() == 1) return parts[0].reshape(shape);
    std::vector<Piece> unnamed;
    for (const at::Tensor& part : parts) unnamed.push_back({Box{}, part});
    const auto [at, fresh] = joined_.try_emplace(identity_of(unnamed));
    if (fresh) {
      for (at::Tensor& part : parts) part = part.reshape({-1});
      at->second = at::cat(parts).reshape(shape);
    }
    return at->second;
  }

  std::vector<Piece> unpack(const Transfer& t, const at::Tensor& array) const {
    const int64_t each = type_.relation.elements_over(t.box);
    if (t.elements() == each) return {{t.box, array.reshape(layout_.shape(t.box))}};
    std::vector<Piece> out;
    for (int64_t begin = 0; begin < t.elements(); begin += each) {
      out.push_back({t.box, array.reshape({-1}).narrow(0, begin, each).reshape(layout_.shape(t.box))});
    }
    return out;
  }

  /// The group's collective, where all sites hold a partial of one block that all of them want folded.
  bool all_reduce(const Exchange& exchange) {
    if (held_.size() != 1 || transport_.sites() == 1 || !exchange.settled.placement.fully_replicated()) return false;
    if (type_.placement.axes_in<ia::Pending>().size() != type_.grid.axes.size() || !type_.holding.regular())
      return false;
    for (const Share& share : exchange.shares) {
      if (static_cast<int64_t>(share.holders.size()) != transport_.sites()) return false;
    }
    std::vector<Piece>& pieces = held_.begin()->second;
    if (pieces.size() != 1) return false;
    const at::Tensor array = pieces[0].array.clone(at::MemoryFormat::Contiguous);
    if (!transport_.all_reduce(who_, exchange.fold, array)) return false;
    pieces[0].array = array;
    return true;
  }

  const std::string& who_;
  ia::PhysicalType type_;
  Layout layout_;
  Transport& transport_;
  BlockStore& store_;
  ReceivedBytes& received_;
  at::TensorOptions options_;
  std::map<int64_t, std::vector<Piece>> held_;
  mutable std::map<std::vector<int64_t>, at::Tensor> joined_;
};

}  // namespace

std::vector<Piece> pieces_at(const StoredRelation& relation, int64_t site, BlockStore& store) {
  std::vector<Piece> pieces;
  const auto boxes = relation.type.stored(site);
  const auto& blocks = relation.sites.at(site);
  JOINSUM_CHECK(boxes.size() == blocks.size(), "site ", site, " stores ", blocks.size(), " blocks of ", boxes.size());
  for (size_t i = 0; i < boxes.size(); ++i) pieces.push_back({boxes[i], Pin(store, blocks[i]).tensor()});
  return pieces;
}

std::vector<int64_t> identity_of(const std::vector<Piece>& pieces) {
  std::vector<int64_t> out;
  for (const Piece& piece : pieces) {
    out.insert(out.end(), piece.box.lower.begin(), piece.box.lower.end());
    out.insert(out.end(), piece.box.upper.begin(), piece.box.upper.end());
    out.push_back(reinterpret_cast<int64_t>(piece.array.data_ptr()));
    for (const auto& sizes : {piece.array.sizes(), piece.array.strides()})
      out.insert(out.end(), sizes.begin(), sizes.end());
  }
  return out;
}

StoredRelation move(const std::string& who, const StoredRelation& source, const ia::PhysicalType& target,
                    Transport& transport, BlockStore& store, ReceivedBytes& received) {
  const Exchange exchange = ia::exchange(source.type, target);
  Mover mover(who, source, transport, store, received);
  if (!exchange.fold.empty()) mover.settle(exchange);
  if (!exchange.copy.empty()) mover.copy(exchange);
  return mover.store(target, store);
}

}  // namespace joinsum::runtime

#include "runtime/communication/moves/member.h"

#include <algorithm>
#include <tuple>

#include "kernels/dense/dense.h"
#include "kernels/dense/row_sums.h"

namespace joinsum::runtime::communication::moves {

using ia::analysis::Exchange;
using ia::analysis::Share;
using ia::analysis::Transfer;
using storage::Block;
using storage::Piece;
using storage::Pin;
using storage::StoredRelation;

std::string operation_of(const std::vector<Member*>& members) {
  const size_t others = members.size() - 1;
  return members.front()->operation() + (others > 0 ? concatenate(" (and ", others, " more)") : "");
}

void join_partials(const std::vector<Member*>& members, const at::Tensor& flat) {
  int64_t begin = 0;
  for (const Member* member : members) {
    const Pin pin(member->partial());
    flat.narrow(0, begin, pin.array().numel()).view(pin.array().sizes()).copy_(pin.array());
    begin += pin.array().numel();
  }
}

void hand_over(const std::vector<Member*>& members, const Block& flat) {
  int64_t begin = 0;
  for (Member* member : members) {
    const Block& partial = member->partial();
    const int64_t elements = partial.elements();
    member->leave_reduction(*flat.narrow(0, begin, elements).viewed_as(partial.shape()), false);
    begin += elements;
  }
}

void reduce_into(const std::string& kernel, const std::vector<at::Tensor>& terms, const at::Tensor& into) {
  if (kernel == "add" && kernels::dense::sum_in_order(terms, into)) return;
  at::Tensor total = terms[0];
  for (size_t i = 1; i < terms.size(); ++i) {
    const bool last = i + 1 == terms.size();
    at::Tensor next = last ? into : i > 1 ? total : at::empty_like(into);
    const at::Tensor result = kernels::dense::run({kernel, {}}, {total, terms[i]}, {}, 0, 0, next);
    if (!result.is_same(next)) next.copy_(result);
    total = std::move(next);
  }
}

Member::Member(const MoveOf& of, Transport& transport, storage::BlockStore& store)
    : move_(of.move),
      relation_(move_.source.relation),
      layout_(relation_),
      source_(of.source),
      overwritable_(of.overwritable),
      transport_(transport),
      store_(store),
      stage_(&move_.copy) {
  for (const auto& [site, boxes] : move_.source_boxes) {
    held_[site] = storage::pieces_of(boxes, source_.sites.at(site));
  }
  options_ = at::TensorOptions().dtype(kernels::dense::scalar_type(relation_.dtype));
  for (const auto& [site, pieces] : held_) {
    if (!pieces.empty()) options_ = pieces.front().block.options();
  }
  if (!move_.exchange.reduction.empty()) stage_ = &move_.reduce;
}

const std::string* Member::all_reduction() const {
  const ia::PhysicalType& type = move_.source;
  const Exchange& exchange = move_.exchange;
  if (stage_ != &move_.reduce || held_.size() != 1 || held_.begin()->second.size() != 1) return nullptr;
  if (!exchange.reduced.placement.fully_replicated() || !type.holding.regular()) return nullptr;
  if (type.placement.axes_in<ia::Pending>().size() != type.grid.axes.size()) return nullptr;
  const bool everyone = std::all_of(exchange.shares.begin(), exchange.shares.end(), [&](const Share& share) {
    return static_cast<int64_t>(share.holders.size()) == transport_.sites();
  });
  return everyone ? &exchange.reduction : nullptr;
}

std::vector<int64_t> Member::reduced_elements() const {
  std::vector<int64_t> elements(transport_.sites());
  for (const Share& share : move_.exchange.shares) elements[share.site] += share.end - share.begin;
  return elements;
}

void Member::leave_reduction(Block reduced, bool in_place) {
  held_.begin()->second.front().block = std::move(reduced);
  in_place_ = in_place;
}

Block Member::payload(const Transfer& t) const {
  if (stage_ != &move_.gather) return cut(t.from, t.box, t.begin, t.end);
  for (const Chunk& chunk : reduced_.at(t.from)) {
    if (chunk.box == t.box && chunk.begin == t.begin && chunk.end == t.end) return chunk.block;
  }
  JOINSUM_CHECK(false, "a share to gather was not reduced");
}

std::optional<Block> Member::place_of(const Transfer& t) {
  if (stage_ != &move_.copy || held_.size() != 1 || !held_.contains(t.to)) return std::nullopt;
  const std::vector<Box>& boxes = move_.target_boxes.at(t.to);
  if (boxes.size() != 1 || !boxes.front().contains(t.box) || !move_.source.holding.regular()) return std::nullopt;
  const int64_t elements = c10::multiply_integers(layout_.shape(t.box));
  if (t.elements() != elements) return std::nullopt;
  if (!result_.defined()) result_ = store_.put(store_.allocate(layout_.shape(boxes.front()), options_));
  const Block place = layout_.slice(result_, boxes.front(), t.box);
  return place.contiguous() ? place.viewed_as({elements}) : std::nullopt;
}

void Member::receive(const std::vector<Block>& blocks) {
  if (stage_ == &move_.reduce) {
    reduce_shares(blocks);
    stage_ = &move_.gather;
  } else if (stage_ == &move_.gather) {
    gather_shares(blocks);
    stage_ = &move_.copy;
  } else {
    add_copies(blocks);
    stage_ = nullptr;
  }
}

StoredRelation Member::at_target() const {
  StoredRelation out{move_.target, {}};
  std::map<std::vector<int64_t>, storage::Blocks> shared;
  for (const auto& [site, pieces] : held_) {
    const auto& boxes = move_.target_boxes.at(site);
    std::vector<Piece> needed;
    std::copy_if(pieces.begin(), pieces.end(), std::back_inserter(needed), [&](const Piece& piece) {
      return std::any_of(boxes.begin(), boxes.end(), [&](const Box& box) { return !box.intersect(piece.box).empty(); });
    });
    std::stable_sort(needed.begin(), needed.end(), [](const Piece& a, const Piece& b) { return a.box < b.box; });
    if (held_.size() == 1) {
      out.sites[site] = blocks_at(boxes, needed);
      break;
    }
    auto key = storage::identity_of(needed);
    for (const Box& box : boxes) {
      key.insert(key.end(), box.lower.begin(), box.lower.end());
      key.insert(key.end(), box.upper.begin(), box.upper.end());
    }
    const auto [at, fresh] = shared.try_emplace(key);
    if (fresh) at->second = blocks_at(boxes, needed);
    out.sites[site] = at->second;
  }
  return out;
}

/// What of the pieces is not in the result yet is copied there, where some was received into it.
storage::Blocks Member::blocks_at(const std::vector<Box>& boxes, const std::vector<Piece>& needed) const {
  if (!result_.defined()) return own_blocks(storage::assemble(relation_, boxes, needed, options_, store_));
  for (const Piece& piece : needed) {
    const Box part = piece.box.intersect(boxes.front());
    if (piece.block.shares_buffer(result_) || part.empty()) continue;
    storage::copy(layout_.slice(piece.block, piece.box, part), layout_.slice(result_, boxes.front(), part));
  }
  return {result_};
}

void Member::reduce_shares(const std::vector<Block>& partials) {
  for (const Share& share : move_.exchange.shares) {
    if (held_.contains(share.site)) reduced_[share.site].push_back(reduce(share, partials));
  }
}

/// Afterwards sites hold what `exchange.reduced` says.
void Member::gather_shares(const std::vector<Block>& gathered) {
  for (size_t i = 0; i < gathered.size(); ++i) {
    const Transfer& t = move_.exchange.gather[i];
    if (held_.contains(t.to)) reduced_[t.to].push_back({t.box, t.begin, t.end, gathered[i]});
  }
  for (auto& [site, pieces] : held_) pieces = join_chunks(std::move(reduced_[site]));
  reduced_.clear();
}

/// Adds what has been received to what the sites hold, in the order of the holders.
void Member::add_copies(const std::vector<Block>& received) {
  const std::vector<Transfer>& transfers = move_.exchange.copy;
  if (transfers.empty()) return;
  std::map<int64_t, std::vector<std::pair<int64_t, Piece>>> arrived;
  for (auto& [site, pieces] : held_) {
    for (const Piece& piece : pieces) arrived[site].emplace_back(site, piece);
  }
  for (size_t i = 0; i < transfers.size(); ++i) {
    const Transfer& t = transfers[i];
    if (!held_.contains(t.to)) continue;
    for (Block& block : storage::unpack(received[i], layout_.shape(t.box), store_)) {
      arrived[t.to].emplace_back(t.from, Piece{t.box, std::move(block)});
    }
  }
  for (auto& [site, pieces] : arrived) {
    std::stable_sort(pieces.begin(), pieces.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    held_[site].clear();
    for (auto& [from, piece] : pieces) held_[site].push_back(std::move(piece));
  }
}

/// The blocks, with buffers of their own in place of the source's: who overwrites the source then sees that it is
/// shared.
storage::Blocks Member::own_blocks(storage::Blocks blocks) const {
  if (in_place_) return blocks;
  for (Block& block : blocks) {
    const bool of_source = std::any_of(source_.sites.begin(), source_.sites.end(), [&](const auto& site) {
      return std::any_of(site.second.begin(), site.second.end(),
                         [&](const Block& other) { return block.shares_buffer(other); });
    });
    if (!of_source) continue;
    const Pin pin(block);
    block = store_.put(pin.array());
  }
  return blocks;
}

/// Elements [begin, end) of what `site` holds of `box`, tuples of a repeated key one after another.
Block Member::cut(int64_t site, const Box& box, int64_t begin, int64_t end) const {
  std::vector<Block> found;
  for (const Piece& piece : held_.at(site)) {
    if (piece.box.contains(box)) found.push_back(layout_.slice(piece.block, piece.box, box));
  }
  JOINSUM_CHECK(!found.empty(), "site ", site, " does not hold ", box.text());
  return storage::pack(found, begin, end, store_);
}

Member::Chunk Member::reduce(const Share& share, const std::vector<Block>& partials) const {
  const std::vector<Transfer>& transfers = move_.exchange.reduce;
  std::vector<Block> terms;
  size_t next = 0;
  for (const int64_t holder : share.holders) {
    if (holder == share.site) {
      terms.push_back(cut(holder, share.box, share.begin, share.end));
      continue;
    }
    if (share.begin == share.end) continue;
    const Transfer wanted{holder, share.site, share.box, share.begin, share.end};
    while (!(transfers[next] == wanted)) ++next;
    terms.push_back(partials[next]);
  }
  if (terms.empty()) terms.push_back(store_.put(at::empty({0}, options_)));
  return {share.box, share.begin, share.end, reduced(terms)};
}

/// In order; a block of its own where there are several.
Block Member::reduced(const std::vector<Block>& terms) const {
  if (terms.size() == 1) return terms.front();
  std::vector<Pin> pins;
  std::vector<at::Tensor> arrays;
  pins.reserve(terms.size());
  for (const Block& term : terms) arrays.push_back(pins.emplace_back(term).array().reshape(terms.front().shape()));
  const at::Tensor sum = store_.allocate(terms.front().shape(), terms.front().options());
  reduce_into(move_.exchange.reduction, arrays, sum);
  return store_.put(sum);
}

/// Concatenates the chunks of each box. Sites that receive the same chunks share the block made of them.
std::vector<Piece> Member::join_chunks(std::vector<Chunk> chunks) {
  std::sort(chunks.begin(), chunks.end(),
            [](const Chunk& a, const Chunk& b) { return std::tie(a.box, a.begin) < std::tie(b.box, b.begin); });
  std::vector<Piece> pieces;
  for (size_t i = 0; i < chunks.size();) {
    const Box& box = chunks[i].box;
    std::vector<Block> parts;
    std::vector<int64_t> identity;
    for (; i < chunks.size() && chunks[i].box == box; ++i) {
      parts.push_back(chunks[i].block);
      parts.back().append_identity(identity);
    }
    Block& joined = joined_[identity];
    if (!joined.defined()) joined = storage::concatenate(parts, layout_.shape(box), store_);
    pieces.push_back({box, joined});
  }
  return pieces;
}

}  // namespace joinsum::runtime::communication::moves

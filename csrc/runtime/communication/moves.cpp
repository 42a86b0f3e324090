#include "runtime/communication/moves.h"

#include <algorithm>
#include <list>
#include <tuple>

#include "kernels/dense/dense.h"

namespace joinsum::runtime::communication {
namespace {

using ia::analysis::Exchange;
using ia::analysis::Share;
using ia::analysis::Transfer;
using storage::Block;
using storage::Layout;
using storage::Piece;
using storage::Pin;
using storage::StoredRelation;

Stage stage_of(const std::vector<Transfer>& transfers, const relation::RelationType& relation,
               const std::vector<int64_t>& local_sites) {
  Stage stage{transfers, {}, {}};
  stage.messages.reserve(transfers.size());
  for (const Transfer& t : transfers) {
    const int64_t bytes = relation.bytes_of(t.elements());
    stage.messages.push_back({t.from, t.to, bytes});
    if (std::find(local_sites.begin(), local_sites.end(), t.to) != local_sites.end()) stage.received[t.to] += bytes;
  }
  return stage;
}

/// A part of a box's elements, [begin, end): a flat block unless it is all of them.
struct Chunk {
  Box box;
  int64_t begin = 0;
  int64_t end = 0;
  Block block;
};

/// One move, whose stages the caller runs: while it is not `done`, the transfers of its `stage` are exchanged, and
/// `receive` takes the blocks.
class Member {
 public:
  Member(const MoveOf& of, Transport& transport, storage::BlockStore& store, const Reducer& reduce)
      : move_(of.move),
        relation_(move_.source.relation),
        layout_(relation_),
        source_(of.source),
        transport_(transport),
        store_(store),
        reduce_(reduce),
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

  /// Where this process has one site and all sites hold a partial of one block that all of them need reduced: the
  /// reduction, which the backend may compute by its own collective; null elsewhere.
  const std::string* all_reduction() const {
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
  const Block& partial() const { return held_.begin()->second.front().block; }
  const Counters& bytes() const { return move_.bytes; }
  /// While the collective runs there are no stages of messages.
  void join_collective() { stage_ = nullptr; }
  void leave_collective(Block reduced) { held_.begin()->second.front().block = std::move(reduced); }

  bool done() const { return stage_ == nullptr; }
  const Stage& stage() const { return *stage_; }
  const std::string& operation() const { return move_.operation; }
  const at::TensorOptions& options() const { return options_; }

  /// What a site of this process sends.
  Block payload(const Transfer& t) const {
    if (stage_ != &move_.gather) return cut(t.from, t.box, t.begin, t.end);
    for (const Chunk& chunk : reduced_.at(t.from)) {
      if (chunk.box == t.box && chunk.begin == t.begin && chunk.end == t.end) return chunk.block;
    }
    JOINSUM_CHECK(false, "a share to gather was not reduced");
  }

  /// `blocks`: one for each transfer, undefined where the receiver is in another process.
  void receive(const std::vector<Block>& blocks) {
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

  /// The relation, once it is done.
  StoredRelation at_target() const {
    StoredRelation out{move_.target, {}};
    std::map<std::vector<int64_t>, std::vector<Block>> shared;
    for (const auto& [site, pieces] : held_) {
      const auto& boxes = move_.target_boxes.at(site);
      std::vector<Piece> needed;
      std::copy_if(pieces.begin(), pieces.end(), std::back_inserter(needed), [&](const Piece& piece) {
        return std::any_of(boxes.begin(), boxes.end(),
                           [&](const Box& box) { return !box.intersect(piece.box).empty(); });
      });
      std::stable_sort(needed.begin(), needed.end(), [](const Piece& a, const Piece& b) { return a.box < b.box; });
      auto key = storage::identity_of(needed);
      for (const Box& box : boxes) {
        key.insert(key.end(), box.lower.begin(), box.lower.end());
        key.insert(key.end(), box.upper.begin(), box.upper.end());
      }
      const auto [at, fresh] = shared.try_emplace(key);
      if (fresh) at->second = own_blocks(storage::assemble(relation_, boxes, needed, options_, store_));
      out.sites[site] = at->second;
    }
    return out;
  }

 private:
  void reduce_shares(const std::vector<Block>& partials) {
    for (const Share& share : move_.exchange.shares) {
      if (held_.contains(share.site)) reduced_[share.site].push_back(reduce(share, partials));
    }
  }

  /// Afterwards sites hold what `exchange.reduced` says.
  void gather_shares(const std::vector<Block>& gathered) {
    for (size_t i = 0; i < gathered.size(); ++i) {
      const Transfer& t = move_.exchange.gather[i];
      if (held_.contains(t.to)) reduced_[t.to].push_back({t.box, t.begin, t.end, gathered[i]});
    }
    for (auto& [site, pieces] : held_) pieces = join_chunks(std::move(reduced_[site]));
    reduced_.clear();
  }

  /// Adds what has been received to what the sites hold, in the order of the holders.
  void add_copies(const std::vector<Block>& received) {
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
  std::vector<Block> own_blocks(std::vector<Block> blocks) const {
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
  Block cut(int64_t site, const Box& box, int64_t begin, int64_t end) const {
    std::vector<Block> found;
    for (const Piece& piece : held_.at(site)) {
      if (piece.box.contains(box)) found.push_back(layout_.slice(piece.block, piece.box, box));
    }
    JOINSUM_CHECK(!found.empty(), "site ", site, " does not hold ", box.text());
    return storage::pack(found, begin, end, store_);
  }

  Chunk reduce(const Share& share, const std::vector<Block>& partials) const {
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
    return {share.box, share.begin, share.end, reduce_(move_.exchange.reduction, terms)};
  }

  /// Concatenates the chunks of each box. Sites that receive the same chunks share the block made of them.
  std::vector<Piece> join_chunks(std::vector<Chunk> chunks) {
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

  const PreparedMove& move_;
  const relation::RelationType& relation_;
  Layout layout_;
  const StoredRelation& source_;
  Transport& transport_;
  storage::BlockStore& store_;
  const Reducer& reduce_;
  at::TensorOptions options_;
  const Stage* stage_;  ///< under way; null after the last one
  std::map<int64_t, std::vector<Piece>> held_;
  std::map<int64_t, std::vector<Chunk>> reduced_;  ///< by site, from the reduce stage to the gather stage
  std::map<std::vector<int64_t>, Block> joined_;
};

/// How errors name moves that travel together.
std::string operation_of(const std::vector<Member*>& members) {
  const size_t others = members.size() - 1;
  return members.front()->operation() + (others > 0 ? concatenate(" (and ", others, " more)") : "");
}

/// Partials of one dtype, in one array that the backend's own all-reduce adds up while the sites compute.
class Bucket {
 public:
  Bucket(std::vector<Member*> members, Transport& transport, storage::BlockStore& store)
      : members_(std::move(members)) {
    int64_t elements = 0;
    Counters bytes;
    for (const Member* member : members_) {
      elements += member->partial().elements();
      bytes.sent += member->bytes().sent;
      bytes.received += member->bytes().received;
    }
    const Member& first = *members_.front();
    const CollectiveCall call{Collective::kAllReduce, operation_of(members_),
                              SubGrids::all(transport.sites()).groups()[0], *first.all_reduction()};
    collective_ = transport.start_in_background(call, first.options(), elements, bytes, [&] {
      sum_ = joined(store.allocate({elements}, first.options()), store);
      return pin_.emplace(sum_).array();
    });
    if (collective_ == nullptr) return;
    for (Member* member : members_) member->join_collective();
  }

  bool started() const { return collective_ != nullptr; }
  bool arrived() const { return collective_->arrived(); }

  /// Hands the sums over.
  void wait() {
    collective_->wait();
    collective_.reset();
    pin_.reset();
    int64_t begin = 0;
    for (Member* member : members_) {
      const Block& partial = member->partial();
      const int64_t elements = partial.elements();
      member->leave_collective(*sum_.narrow(0, begin, elements).viewed_as(partial.shape()));
      begin += elements;
    }
  }

  void settle() noexcept {
    try {
      if (collective_ != nullptr) collective_->wait();
    } catch (const std::exception&) {
      return;  // the run's own error says more
    }
  }

 private:
  Block joined(at::Tensor array, storage::BlockStore& store) const {
    int64_t begin = 0;
    for (const Member* member : members_) {
      const Pin pin(member->partial());
      array.narrow(0, begin, pin.array().numel()).view(pin.array().sizes()).copy_(pin.array());
      begin += pin.array().numel();
    }
    return store.put(std::move(array));
  }

  std::vector<Member*> members_;
  Block sum_;
  std::optional<Pin> pin_;
  std::unique_ptr<CollectiveHandle> collective_;
};

/// The messages of the members of one dtype and device.
class Messages {
 public:
  Messages(std::vector<Member*> members, Transport& transport, storage::BlockStore& store)
      : members_(std::move(members)) {
    std::vector<Message> messages;
    for (size_t m = 0; m < members_.size(); ++m) {
      const Stage& stage = members_[m]->stage();
      messages.insert(messages.end(), stage.messages.begin(), stage.messages.end());
      for (const Transfer& transfer : stage.transfers) transfers_.push_back({m, &transfer});
    }
    if (messages.empty()) return;
    sent_.resize(messages.size());
    pins_.reserve(messages.size());
    const at::TensorOptions& options = members_.front()->options();
    const Allocate allocate = [&](int64_t elements) { return store.allocate({elements}, options); };
    exchange_ = transport.start(
        operation_of(members_), messages, options,
        [&](size_t i) {
          sent_[i] = members_[transfers_[i].first]->payload(*transfers_[i].second);
          return pins_.emplace_back(sent_[i]).array();
        },
        allocate);
  }

  /// Hands the blocks over. What stays in this process is the sender's block.
  void wait(storage::BlockStore& store) {
    std::vector<at::Tensor> arrays(transfers_.size());
    if (exchange_ != nullptr) arrays = exchange_->wait();
    std::vector<std::vector<Block>> blocks(members_.size());
    for (size_t i = 0; i < arrays.size(); ++i) {
      Block& block = blocks[transfers_[i].first].emplace_back();
      if (arrays[i].defined()) block = sent_[i].defined() ? sent_[i] : store.put(std::move(arrays[i]));
    }
    pins_.clear();
    for (size_t m = 0; m < members_.size(); ++m) members_[m]->receive(blocks[m]);
  }

  void settle() noexcept {
    try {
      if (exchange_ != nullptr) exchange_->wait();
    } catch (const std::exception&) {
      return;  // the run's own error says more
    }
  }

 private:
  std::vector<Member*> members_;
  std::vector<std::pair<size_t, const Transfer*>> transfers_;  ///< of each message: its member's position, the transfer
  std::vector<Block> sent_;
  std::vector<Pin> pins_;  ///< of what is being sent
  std::unique_ptr<ExchangeHandle> exchange_;
};

class Group final : public MovesUnderway {
 public:
  Group(const std::vector<MoveOf>& moves, Transport& transport, storage::BlockStore& store, const Reducer& reduce)
      : transport_(transport), store_(store) {
    for (const MoveOf& move : moves) members_.push_back(std::make_unique<Member>(move, transport, store, reduce));
    start_collectives();
    send();
  }

  void advance() override {
    for (Messages& messages : messages_) messages.wait(store_);
    send();
  }

  bool arrived() const override {
    return std::all_of(buckets_.begin(), buckets_.end(), [](const Bucket& bucket) { return bucket.arrived(); });
  }

  std::vector<StoredRelation> finish() override {
    while (!messages_.empty()) advance();
    for (Bucket& bucket : buckets_) bucket.wait();
    std::vector<StoredRelation> out;
    for (const auto& member : members_) out.push_back(member->at_target());
    return out;
  }

  void settle() noexcept override {
    for (Messages& messages : messages_) messages.settle();
    for (Bucket& bucket : buckets_) bucket.settle();
  }

 private:
  /// The members that are not done and of which `relevant` holds, by dtype, device and what else `alike` compares.
  template <typename Relevant, typename Alike>
  std::vector<std::vector<Member*>> classes(const Relevant& relevant, const Alike& alike) const {
    std::vector<std::vector<Member*>> out;
    for (const auto& member : members_) {
      if (member->done() || !relevant(*member)) continue;
      const auto found = std::find_if(out.begin(), out.end(), [&](const std::vector<Member*>& others) {
        const at::TensorOptions& a = others.front()->options();
        return a.dtype() == member->options().dtype() && a.device() == member->options().device() &&
               alike(*others.front(), *member);
      });
      (found != out.end() ? *found : out.emplace_back()).push_back(member.get());
    }
    return out;
  }

  void start_collectives() {
    const auto reduced = [](const Member& member) { return member.all_reduction() != nullptr; };
    const auto by_one_kernel = [](const Member& a, const Member& b) {
      return *a.all_reduction() == *b.all_reduction();
    };
    for (std::vector<Member*>& members : classes(reduced, by_one_kernel)) {
      buckets_.emplace_back(std::move(members), transport_, store_);
      if (!buckets_.back().started()) buckets_.pop_back();
    }
  }

  void send() {
    messages_.clear();
    const auto all = [](const Member&) { return true; };
    const auto any = [](const Member&, const Member&) { return true; };
    for (std::vector<Member*>& members : classes(all, any)) {
      messages_.emplace_back(std::move(members), transport_, store_);
    }
  }

  Transport& transport_;
  storage::BlockStore& store_;
  std::vector<std::unique_ptr<Member>> members_;
  std::list<Messages> messages_;  ///< of the stage under way
  std::list<Bucket> buckets_;
};

}  // namespace

PreparedMove::PreparedMove(std::string operation_name, const ia::PhysicalType& from, const ia::PhysicalType& to,
                           const std::vector<int64_t>& local_sites)
    : operation(std::move(operation_name)),
      source(from),
      target(ia::shared(to)),
      exchange(ia::analysis::exchange(from, to)),
      reduce(stage_of(exchange.reduce, from.relation, local_sites)),
      gather(stage_of(exchange.gather, from.relation, local_sites)),
      copy(stage_of(exchange.copy, from.relation, local_sites)) {
  for (const int64_t site : local_sites) {
    source_boxes.emplace(site, from.stored(site));
    target_boxes.emplace(site, to.stored(site));
  }
  for (const Stage* stage : {&reduce, &gather, &copy}) {
    for (const auto& [site, bytes_received] : stage->received) {
      received[site] = std::max(received[site], bytes_received);
    }
    for (const Message& message : stage->messages) {
      if (source_boxes.contains(message.from)) bytes.sent += message.bytes;
      if (source_boxes.contains(message.to)) bytes.received += message.bytes;
    }
  }
}

std::unique_ptr<MovesUnderway> start(const std::vector<MoveOf>& moves, Transport& transport, storage::BlockStore& store,
                                     const Reducer& reduce) {
  return std::make_unique<Group>(moves, transport, store, reduce);
}

}  // namespace joinsum::runtime::communication

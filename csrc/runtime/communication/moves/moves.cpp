#include "runtime/communication/moves/moves.h"

#include <algorithm>
#include <list>

#include "runtime/communication/moves/background_reduction.h"
#include "runtime/communication/moves/member.h"
#include "runtime/communication/moves/messages.h"
#include "runtime/communication/moves/reduction_by_messages.h"
#include "runtime/communication/moves/sparse_move.h"

namespace joinsum::runtime::communication::moves {
namespace {

using ia::analysis::Transfer;
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

class Group final : public MovesUnderway {
 public:
  Group(const std::vector<MoveOf>& moves, Transport& transport, storage::BlockStore& store)
      : transport_(transport), store_(store) {
    for (const MoveOf& move : moves) {
      const bool sparse = move.move.source.relation.sparse();
      sparse_.push_back(sparse ? std::optional(move_sparse(move, transport, store)) : std::nullopt);
      if (!sparse) members_.push_back(std::make_unique<Member>(move, transport, store));
    }
    start_reductions();
    send();
  }

  void advance() override {
    for (ReductionByMessages& reduction : reductions_) reduction.advance();
    reductions_.remove_if([](const ReductionByMessages& reduction) { return reduction.done(); });
    for (Messages& messages : messages_) messages.wait(store_);
    send();
  }

  bool arrived() const override {
    return std::all_of(background_.begin(), background_.end(),
                       [](const BackgroundReduction& reduction) { return reduction.arrived(); });
  }

  std::vector<StoredRelation> finish() override {
    while (!messages_.empty() || !reductions_.empty()) advance();
    for (BackgroundReduction& reduction : background_) reduction.wait();
    std::vector<StoredRelation> out;
    size_t next = 0;
    for (const auto& moved : sparse_) out.push_back(moved ? *moved : members_[next++]->at_target());
    return out;
  }

  void settle() noexcept override {
    for (ReductionByMessages& reduction : reductions_) reduction.settle();
    for (Messages& messages : messages_) messages.settle();
    for (BackgroundReduction& reduction : background_) reduction.settle();
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

  void start_reductions() {
    const auto reduced = [](const Member& member) { return member.all_reduction() != nullptr; };
    const auto by_one_kernel = [](const Member& a, const Member& b) {
      return *a.all_reduction() == *b.all_reduction();
    };
    for (const std::vector<Member*>& members : classes(reduced, by_one_kernel)) {
      if (background_.emplace_back(members, transport_, store_).started()) continue;
      background_.pop_back();
      reductions_.emplace_back(members, transport_, store_);
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
  std::vector<std::optional<StoredRelation>> sparse_;  ///< by move, those of sparse relations
  std::vector<std::unique_ptr<Member>> members_;       ///< of the others
  std::list<Messages> messages_;                       ///< of the stage under way
  std::list<BackgroundReduction> background_;
  std::list<ReductionByMessages> reductions_;  ///< that are not done
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

std::unique_ptr<MovesUnderway> start(const std::vector<MoveOf>& moves, Transport& transport,
                                     storage::BlockStore& store) {
  return std::make_unique<Group>(moves, transport, store);
}

}  // namespace joinsum::runtime::communication::moves

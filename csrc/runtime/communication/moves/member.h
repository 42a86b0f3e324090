#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/communication/moves/moves.h"

namespace joinsum::runtime::communication::moves {

/// One move of a group. The group runs its stages: while it is not `done`, the transfers of its `stage` are exchanged,
/// and `receive` takes the blocks.
class Member {
 public:
  Member(const MoveOf& of, Transport& transport, storage::BlockStore& store);

  /// Where this process has one site and all sites hold a partial of one block that all of them need reduced: the
  /// kernel that reduces it; null elsewhere.
  const std::string* all_reduction() const;
  /// Elements of the partial that each site reduces.
  std::vector<int64_t> reduced_elements() const;
  const storage::Block& partial() const { return held_.begin()->second.front().block; }
  /// Whether nobody else reads the partial, now or later.
  bool partial_is_overwritable() const { return overwritable_ && partial().exclusive(); }
  /// Of the messages of all stages, from and to this process.
  const Counters& bytes() const { return move_.bytes; }
  /// While others reduce the partial there are no stages.
  void join_reduction() { stage_ = nullptr; }
  /// `in_place`: whether `reduced` is the partial's memory.
  void leave_reduction(storage::Block reduced, bool in_place);

  bool done() const { return stage_ == nullptr; }
  const Stage& stage() const { return *stage_; }
  const std::string& operation() const { return move_.operation; }
  const at::TensorOptions& options() const { return options_; }

  /// What a site of this process sends.
  storage::Block payload(const ia::analysis::Transfer& t) const;
  /// The part of the result, as a flat block, that this process receives the transfer into; nothing where the result
  /// does not store these elements contiguously.
  std::optional<storage::Block> place_of(const ia::analysis::Transfer& t);
  /// `blocks`: one for each transfer, undefined where the receiver is in another process.
  void receive(const std::vector<storage::Block>& blocks);
  /// The relation, once it is done.
  storage::StoredRelation at_target() const;

 private:
  /// A part of a box's elements, [begin, end): a flat block unless it is all of them.
  struct Chunk {
    Box box;
    int64_t begin = 0;
    int64_t end = 0;
    storage::Block block;
  };

  void reduce_shares(const std::vector<storage::Block>& partials);
  void gather_shares(const std::vector<storage::Block>& gathered);
  void add_copies(const std::vector<storage::Block>& received);
  storage::Blocks blocks_at(const std::vector<Box>& boxes, const std::vector<storage::Piece>& needed) const;
  storage::Blocks own_blocks(storage::Blocks blocks) const;
  storage::Block cut(int64_t site, const Box& box, int64_t begin, int64_t end) const;
  Chunk reduce(const ia::analysis::Share& share, const std::vector<storage::Block>& partials) const;
  storage::Block reduced(const std::vector<storage::Block>& terms) const;
  std::vector<storage::Piece> join_chunks(std::vector<Chunk> chunks);

  const PreparedMove& move_;
  const relation::RelationType& relation_;
  storage::Layout layout_;
  const storage::StoredRelation& source_;
  bool overwritable_;
  Transport& transport_;
  storage::BlockStore& store_;
  at::TensorOptions options_;
  const Stage* stage_;  ///< under way; null after the last one
  std::map<int64_t, std::vector<storage::Piece>> held_;
  std::map<int64_t, std::vector<Chunk>> reduced_;  ///< by site, from the reduce stage to the gather stage
  std::map<std::vector<int64_t>, storage::Block> joined_;
  storage::Block result_;  ///< of this process's only site, from the first transfer that is received into it
  bool in_place_ = false;
};

/// How errors name moves that travel together.
std::string operation_of(const std::vector<Member*>& members);

/// Copies the members' partials into a flat array, one after another.
void join_partials(const std::vector<Member*>& members, const at::Tensor& flat);
/// Gives each member its part of the flat array, as what the partial has become.
void hand_over(const std::vector<Member*>& members, const storage::Block& flat);

/// Reduces arrays of one shape, two at least, in order, by `kernel` into `into`, which may be one of them.
void reduce_into(const std::string& kernel, const std::vector<at::Tensor>& terms, const at::Tensor& into);

}  // namespace joinsum::runtime::communication::moves

#pragma once

#include <vector>

#include "sparse/kernels/nest/block.h"
#include "sparse/kernels/nest/loop_plan.h"

namespace joinsum::sparse::kernels::nest {

/// The visits of an innermost loop, in blocks of columns: their coordinates and the entries of the operands.
class Candidates {
 public:
  explicit Candidates(const LoopPlan& plan);

  /// Begins the loop over [lower, upper) where the operands are at `positions`.
  void start(const int64_t* positions, int64_t lower, int64_t upper);
  /// The next block; false where none is left. A block may be empty.
  bool next();

  int64_t count() const { return count_; }
  /// Ascending.
  const int64_t* coordinates() const { return coordinates_; }
  /// Parallel to the loop's participants.
  const std::vector<BlockEntries>& entries() const { return entries_; }

 private:
  enum class Leader : uint8_t { kNone, kRange, kList, kBytemap, kIntersection, kUnion };

  void start_leader(const int64_t* positions);
  void next_range();
  void next_list();
  void next_bytemap();
  void next_intersection();
  void next_union();
  void look_up(int64_t participant);
  template <LevelFormat kFormat>
  void look_up_as(int64_t participant);
  /// Keeps the visits `keep_[0..kept)` of the block, for the participants before `participant`.
  void compact(int64_t participant, int64_t kept);
  int64_t* column(int64_t participant) { return columns_.data() + participant * kBlock; }
  void set_listed(int64_t participant, bool may_be_absent);

  const LoopPlan& plan_;
  Leader leader_ = Leader::kNone;
  int64_t looked_up_from_ = 0;  ///< the first participant that the leader leaves to lookups
  int64_t lower_ = 0;
  int64_t upper_ = 0;
  int64_t count_ = 0;
  bool is_range_ = false;  ///< the block's coordinates follow each other
  const int64_t* coordinates_ = nullptr;
  std::vector<BlockEntries> entries_;
  std::vector<Walk> walks_;
  std::vector<Search> searches_;
  std::vector<int64_t> columns_;
  std::vector<int64_t> own_coordinates_;
  std::vector<int64_t> keep_;
};

}  // namespace joinsum::sparse::kernels::nest

#pragma once

#include <optional>
#include <vector>

#include "sparse/kernels/nest/block.h"
#include "sparse/kernels/nest/loop_plan.h"

namespace joinsum::sparse::kernels::nest {

/// The first of the last loops that one operand walks alone, while the others have dense levels there; the last loop if
/// the one before it is another kind of loop.
int64_t first_merged_loop(const NestPlan& plan);

/// The visits of these loops, in blocks of columns. The entries of the walker's last level follow each other in memory,
/// however short the lists are that they are in.
class MergedLoops {
 public:
  explicit MergedLoops(const NestPlan& plan);

  /// Begins at the positions of the operands; the first loop is over [lower, upper) of its coordinates.
  void start(const int64_t* positions, int64_t lower, int64_t upper);
  /// The next block; false where none is left.
  bool next();

  int64_t count() const { return count_; }
  /// Parallel to `participants`.
  const std::vector<BlockEntries>& entries() const { return entries_; }
  /// The operands with levels in these loops.
  const std::vector<int64_t>& participants() const { return operands_; }

  /// How many lists of the last loop the block's visits are in.
  int64_t lists() const { return lists_; }
  /// Whether each visit is in a list of its own.
  bool alone() const { return list_ends_ == nullptr; }
  /// Past the visits of one of the lists; these follow each other.
  int64_t list_end(int64_t list) const { return alone() ? list + 1 : list_ends_[list]; }
  /// Whether the first list began in the block before.
  bool continues() const { return continues_; }
  /// Where each visit's element is in the result's workspace, from that of the loops around; where the last loop is
  /// none of the result's, each list's.
  const int64_t* places() const { return places_.data(); }

 private:
  /// An operand that looks up its coordinates in dense levels.
  struct Lookup {
    std::vector<int64_t> loops;  ///< from the first merged one
    std::vector<int64_t> sizes;  ///< of its levels
    int64_t above = 0;           ///< where the entry above them is among the positions
    bool required = false;
    int64_t fiber = 0;  ///< that entry
    std::vector<int64_t> listed = {};
  };

  /// The walker's entries of one level at the lists of a block, or of the last level at its visits.
  struct Entries {
    int64_t first = 0;
    const int64_t* listed = nullptr;  ///< null where they follow each other
  };

  std::optional<int64_t> lists_of_one(size_t loop, int64_t first, int64_t count);
  Entries find_lists(int64_t first);
  Entries above(size_t loop, const Entries& entries);
  void read_coordinates(size_t loop, const Entries& entries, int64_t count);
  const int64_t* at_visits(size_t loop);
  void find_places();
  void look_up(size_t number);

  const NestPlan& plan_;
  int64_t first_loop_;
  std::vector<LevelView> levels_;  ///< of the walker
  int64_t above_;                  ///< where its entry above them is among the positions
  std::vector<Lookup> lookups_;
  std::vector<int64_t> operands_;
  std::vector<BlockEntries> entries_;
  int64_t at_ = 0;  ///< the walker's last entries that are left
  int64_t end_ = 0;
  int64_t first_fiber_ = 0;       ///< the entry above the walker's levels
  std::vector<int64_t> cursors_;  ///< of each level but the last: an entry that is not past the next visit's
  std::vector<int64_t> ends_;     ///< past the entries of each level but the last
  int64_t count_ = 0;
  int64_t lists_ = 0;                   ///< that the block's visits are in
  const int64_t* list_ends_ = nullptr;  ///< null: each visit is in one of its own
  int64_t last_list_ = -1;              ///< the one of the last visit
  bool continues_ = false;
  std::vector<std::vector<int64_t>> listed_;    ///< entries of each level at the block's lists
  std::vector<std::vector<int64_t>> read_;      ///< coordinates of each loop, at its lists or, of the last one, visits
  std::vector<std::vector<int64_t>> expanded_;  ///< those of the lists, at their visits
  std::vector<bool> is_expanded_;               ///< in this block
  std::vector<const int64_t*> coordinates_;     ///< of each loop
  std::vector<int64_t> ends_of_lists_;
  std::vector<int64_t> places_;
};

}  // namespace joinsum::sparse::kernels::nest

#pragma once

#include <map>
#include <vector>

#include "optimizer/resharding/resharding_problem.h"

namespace joinsum::optimizer::solvers {

/// Bounds the cost of a resharding problem from below, and finds choices near the bound.
///
/// Each vertex allots its costs to the reshardings of its values, in the same shares for all choices: then each
/// resharding alone is easily minimised, and the sum of the minima is a bound. A pass goes through the vertices and
/// allots the costs of each anew so that the bound does not fall: sequential reweighted message passing.
///
/// In problems with many entries, a resharding serves fewer readers, and allotments are rounded, so that equal layers
/// allot alike and their messages are computed once. The bound holds for any allotments; these make it slightly lower.
///
/// Source: Kolmogorov, A new look at reweighted message passing, 2015.
class MessagePassing {
 public:
  /// More readers have too many partitions into groups.
  static constexpr size_t kMostReaders = 6;
  /// The entries of a pass up to which one resharding serves so many readers.
  static constexpr double kJointEntries = 3e7;
  /// Values with more readers than `most_readers` have several reshardings.
  explicit MessagePassing(const resharding::ReshardingProblem& problem, size_t most_readers = kMostReaders,
                          double joint_entries = kJointEntries);

  /// One pass forward and one backward. Drops strategies with which every choice costs more than `limit`.
  void ascend(double limit);
  /// No choice costs less, except choices above the limits of passes. Evaluated every few passes.
  double bound() const { return bound_; }
  /// Whether passes read many entries.
  bool large() const { return large_; }
  /// About how many entries passes have read.
  double entries() const { return cache_->entries(); }
  /// Chooses vertex by vertex: each strategy is the best with those chosen before and the messages of the rest.
  std::vector<size_t> choose() const;

 private:
  using Messages = std::vector<resharding::Resharding::Messages>;

 public:
  /// The strategies of some vertices, with what bounds the cost of all choices that extend them.
  class Partial {
   private:
    friend class MessagePassing;
    Messages messages;
    std::vector<double> least;  ///< of each resharding
    std::vector<double> costs;  ///< of each vertex: of its strategy, or its least unallotted cost
  };
  Partial nothing() const;
  /// For each strategy of a vertex that is still open, a bound on the cost of all choices that extend `partial` by it.
  std::vector<double> bounds(const Partial& partial, size_t vertex) const;
  Partial with(const Partial& partial, size_t vertex, size_t strategy) const;

 private:
  /// The resharding of a value to all its readers, or to some of many; the prices of its moves are then divided.
  struct Factor {
    resharding::Resharding resharding;
    std::vector<const resharding::ReshardingProblem::Member*> members;
    int64_t changes = 0;              ///< of all members' charges
    std::vector<int64_t> changes_of;  ///< of each member's charges
  };
  struct Link {
    size_t factor;
    size_t member;
    bool earlier;                      ///< whether another member precedes this vertex
    bool later;                        ///< whether another member follows this vertex
    std::vector<double> message = {};  ///< from the other members, valid after so many changes of theirs
    int64_t changes = -1;
  };
  void add(const resharding::ReshardingProblem::Value& value, size_t most_readers);
  void link(size_t factor);
  void update(size_t vertex, bool forward, double limit);
  std::vector<double> gathered(size_t vertex);
  const std::vector<double>& message_to(Link& link) const;
  void change(const Link& link);
  double evaluated_bound() const;
  double least_unallotted(size_t vertex) const;
  std::vector<double> costs_beside(size_t vertex, const Messages& messages) const;
  void charge(Messages& messages, const Link& link, const std::vector<double>& allotted) const;
  void fix(Messages& messages, size_t vertex, size_t strategy) const;

  std::shared_ptr<resharding::MessageCache> cache_ = std::make_shared<resharding::MessageCache>();
  std::vector<std::vector<double>> costs_;  ///< of vertices, by strategy
  std::map<std::pair<const resharding::Routes*, size_t>, std::shared_ptr<const resharding::Routes>> scaled_routes_;
  std::vector<Factor> factors_;
  std::vector<std::vector<Link>> links_;                    ///< by vertex
  std::vector<std::vector<std::vector<double>>> allotted_;  ///< by factor, member and strategy
  Messages messages_;                                       ///< the least of these by layout
  double bound_;
  bool large_ = false;
  int passes_ = 0;
};

}  // namespace joinsum::optimizer::solvers

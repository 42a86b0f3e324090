#pragma once

#include <map>
#include <vector>

#include "optimizer/placement/delivery_problem.h"

namespace joinsum::optimizer {

/// Bounds the cost of a delivery problem from below, and finds choices near the bound.
///
/// Each vertex' costs are divided between its deliveries, in the same parts for all choices: then each part alone is
/// easily minimised, and the sum of the minima is a bound. A pass goes through the vertices and divides the costs of
/// each anew so that the bound does not fall: sequential reweighted message passing.
///
/// Of problems with many entries, deliveries are to fewer readers each, and payments are rounded, so that equal layers
/// pay alike and their messages are computed once. The bound holds for any payments; these make it a little lower.
///
/// Source: Kolmogorov, A new look at reweighted message passing, 2015.
class Dual {
 public:
  /// Readers beyond which the ways to group them are too many.
  static constexpr size_t kMostReaders = 6;
  /// Entries of a pass up to which so many readers are delivered to together.
  static constexpr double kTogether = 3e7;
  /// Values with more readers than `most_readers` are delivered in parts.
  explicit Dual(const DeliveryProblem& problem, size_t most_readers = kMostReaders, double together = kTogether);

  /// One pass forward and one backward. Modes with which all choices cost more than `limit` are chosen no more.
  void ascend(double limit);
  /// No choices cost less, but for those above the limits. Looked at every few passes.
  double bound() const { return bound_; }
  /// Whether passes look at many entries.
  bool large() const { return large_; }
  /// That passes have looked at, about.
  double entries() const { return memory_->entries(); }
  /// Modes chosen one vertex after the other, each the best beside those chosen and what the rest asks.
  std::vector<size_t> choose() const;

 private:
  using Asked = std::vector<Delivery::Asked>;

 public:
  /// Some vertices' modes, with what bounds the cost of all choices that have them.
  class Partial {
   private:
    friend class Dual;
    Asked asked;
    std::vector<double> least;  ///< of each delivery
    std::vector<double> costs;  ///< of each vertex: of its mode, or the least of what it does not pay for deliveries
  };
  Partial nothing() const;
  /// For each mode of a vertex that has none yet, a bound of what all choices cost that have it too.
  std::vector<double> bounds(const Partial& partial, size_t vertex) const;
  Partial with(const Partial& partial, size_t vertex, size_t mode) const;

 private:
  /// A value that is delivered to all its readers, or to some of many: then its moves count in part.
  struct Part {
    Delivery delivery;
    std::vector<const DeliveryProblem::Member*> members;
    int64_t changes = 0;              ///< of what members ask for
    std::vector<int64_t> changes_of;  ///< each member
  };
  struct Link {
    size_t part;
    size_t member;
    bool earlier;                      ///< whether another member is a vertex before this one
    bool later;                        ///< whether another member is one after it
    std::vector<double> message = {};  ///< from the other members, after so many changes of theirs
    int64_t changes = -1;
  };
  void add(const DeliveryProblem::Value& value, size_t most_readers);
  void link(size_t part);
  void update(size_t vertex, bool forward, double limit);
  std::vector<double> gathered(size_t vertex);
  const std::vector<double>& message_to(Link& link) const;
  void change(const Link& link);
  double evaluated() const;
  double least_rest(size_t vertex) const;
  std::vector<double> costs_beside(size_t vertex, const Asked& asked) const;
  void ask(Asked& asked, const Link& link, const std::vector<double>& paid) const;
  void fix(Asked& asked, size_t vertex, size_t mode) const;

  std::shared_ptr<MessageMemory> memory_ = std::make_shared<MessageMemory>();
  std::vector<std::vector<double>> costs_;  ///< of vertices, by mode
  std::map<std::pair<const Routes*, size_t>, std::shared_ptr<const Routes>> in_parts_;
  std::vector<Part> parts_;
  std::vector<std::vector<Link>> links_;                ///< by vertex
  std::vector<std::vector<std::vector<double>>> paid_;  ///< by part, member and mode
  Asked asked_;                                         ///< the least of these by place
  double bound_;
  bool large_ = false;
  int passes_ = 0;
};

}  // namespace joinsum::optimizer

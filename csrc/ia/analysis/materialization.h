#pragma once

#include <unordered_set>

#include "ia/nodes.h"

namespace joinsum::ia::analysis {

/// Joins that the executor never materializes: contractions whose only reader is a local aggregate by the contraction's
/// own aggregation kernel. The executor computes both as one contraction of each pair of blocks.
std::unordered_set<const Node*> fused_joins(const Plan& plan);

/// The nodes of a call's further results, each with the node of its first result, which computes them all.
std::unordered_map<const Node*, const Node*> further_results(const Plan& plan);

/// A joined value that takes more bytes on some site is not materialized if it can be recomputed by tiles.
constexpr int64_t kMostJoinedBytes = int64_t{1} << 24;

/// Which values of a plan the executor stores, for the executor and the cost model. Not stored are:
/// - fused joins;
/// - maps that reduce axes, if a local aggregate that alone reads them reduces the keys of these axes by the same
///   kernel: both are one reduction;
/// - values that are recomputed tile by tile: values whose elements can be computed one by one, that take more than
///   `most_bytes` and more than each operand (or an operand is recomputed too), and that only reductions and recomputed
///   values read. Each reduction computes them again;
/// - sums of products whose only reader is `addcmul(x, sum, number)`, as where SGD updates a weight by its gradient:
///   the products are added to x.
class Materialization {
 public:
  explicit Materialization(const Plan& plan, int64_t most_bytes = kMostJoinedBytes);

  bool materialized(const Node& node) const {
    return !fused_.contains(&node) && !recomputed_.contains(&node) && !added_.contains(&node);
  }
  bool fused(const Node& node) const { return fused_.contains(&node); }
  bool recomputed(const Node& node) const { return recomputed_.contains(&node); }
  /// The sum of products that `node` adds to its first operand without materializing it; null where there is none.
  const Node* added_by(const Node& node) const;
  /// Whether `node`, which is materialized, reduces recomputed values.
  bool reduces_recomputed(const Node& node) const;
  /// The materialized values that `node` reads, directly or through values that are not materialized: one entry for
  /// each use, or one for each value where `node` reduces recomputed values. None for a further result of a call: the
  /// first result's node reads them.
  std::vector<const Node*> operands(const Node& node) const;
  /// Of a call's first result its further ones, of each in the order of the plan.
  const std::vector<const Node*>& results_beside(const Node& node) const;
  bool further_result(const Node& node) const { return further_.contains(&node); }
  /// How often materialized nodes and outputs read each node.
  std::unordered_map<const Node*, int64_t> uses() const;
  /// The nodes that are not materialized.
  std::unordered_set<const Node*> not_materialized() const;

 private:
  void find_recomputed(int64_t most_bytes);
  using Counts = std::unordered_map<const Node*, int64_t>;
  void find_fused_maps(const Counts& uses);
  void find_added(const Counts& uses);

  Plan plan_;  ///< keeps the nodes that the others point to
  std::unordered_set<const Node*> fused_;
  std::unordered_set<const Node*> recomputed_;
  std::unordered_set<const Node*> added_;
  std::unordered_map<const Node*, const Node*> further_;
  std::unordered_map<const Node*, std::vector<const Node*>> beside_;
};

}  // namespace joinsum::ia::analysis

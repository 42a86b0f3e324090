#pragma once

#include <unordered_set>

#include "ia/nodes.h"

namespace joinsum::ia {

/// Joins that the executor never materialises: a contraction whose only use is a local fold by the kernel that it folds
/// with is computed with it, as one contraction over each pair of blocks. Both executor and cost ask here.
std::unordered_set<const Node*> fused_joins(const Plan& plan);

/// Results of calls that are computed with another one, the first, of the same operator on the same operands.
std::unordered_map<const Node*, const Node*> further_results(const Plan& plan);

/// Number of uses of each node in a plan, outputs included.
std::unordered_map<const Node*, int64_t> use_counts(const Plan& plan);

/// Bytes on one site above which a joined value is not formed if it need not be.
constexpr int64_t kMostJoinedBytes = int64_t{1} << 24;

/// What the executor forms of a plan. Not formed are fused joins, and streamed values: what a site would hold more than
/// `most_bytes` of, and more than of each operand (or of operands that are streamed), whose elements are computed one
/// by one, and whose every use is a fold or streamed too. Each fold works them out again, by blocks.
class Formation {
 public:
  explicit Formation(const Plan& plan, int64_t most_bytes = kMostJoinedBytes);

  bool formed(const Node& node) const { return !fused_.contains(&node) && !streamed_.contains(&node); }
  bool fused(const Node& node) const { return fused_.contains(&node); }
  bool streamed(const Node& node) const { return streamed_.contains(&node); }
  /// Whether `node`, which is formed, folds streamed values.
  bool folds_streamed(const Node& node) const;
  /// What `node` reads: in place of values that are not formed, those that they read. Each once per use, where `node`
  /// folds streamed values once.
  std::vector<const Node*> operands(const Node& node) const;
  /// How often formed nodes and outputs read each node.
  std::unordered_map<const Node*, int64_t> uses() const;
  /// Nodes that are not formed.
  std::unordered_set<const Node*> unformed() const;

 private:
  Plan plan_;  ///< keeps the nodes that the others point to
  std::unordered_set<const Node*> fused_;
  std::unordered_set<const Node*> streamed_;
};

}  // namespace joinsum::ia

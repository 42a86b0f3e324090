#pragma once

#include <compare>
#include <string>
#include <unordered_map>
#include <vector>

#include "ia/nodes.h"
#include "optimizer/cost/objective.h"

namespace joinsum::optimizer::rules {

/// Contractions whose work some grid axis repeats although a key dimension could still be divided along it. Repeating
/// all work moves nothing; so where only moves are minimised, such plans are baselines and come after all others.
int64_t undivided_contractions(const ia::Plan& plan);

/// What plans are compared by: under `paper_floats` and `wire_bytes` first their undivided contractions; then the
/// objective, the flops of the busiest site, the number of operators.
struct Score {
  double undivided = 0;
  double value = 0;
  double flops = 0;
  double operators = 0;
  auto operator<=>(const Score&) const = default;
};

/// Scores plans whose nodes live as long as it does: each node is priced once, and so are equal moves.
class Pricer {
 public:
  Pricer(cost::Objective objective, cost::Cluster cluster) : objective_(objective), cluster_(std::move(cluster)) {}

  /// The sum over the plan's nodes. A plan that needs more memory than the cluster's limit scores infinity.
  Score score(const ia::Plan& plan);

 private:
  const cost::NodeCost& price(const ia::NodePtr& node, cost::Fusion fusion);

  /// A move on the grid, which its types and what they hold price.
  struct Move {
    ia::PhysicalType from;
    ia::PhysicalType to;
    cost::NodeCost price;
  };

  cost::Objective objective_;
  cost::Cluster cluster_;
  std::unordered_map<const ia::Node*, cost::NodeCost> prices_[4];
  std::unordered_map<uint64_t, std::vector<Move>> moves_;
};

}  // namespace joinsum::optimizer::rules

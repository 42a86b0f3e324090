#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "optimizer/division/label_classes.h"
#include "optimizer/lowering/placement_lowering.h"
#include "optimizer/model/min_sum_tables.h"
#include "optimizer/solvers/branch_and_bound.h"
#include "optimizer/solvers/completion.h"

namespace joinsum::optimizer {

/// A plan with a placement of every value of the logical plan.
struct PlacementSolution {
  ia::Plan plan;
  double lower_bound = 0;  ///< no placement of the problem costs less
  bool exact = false;      ///< the placement is proven best
  /// The nodes that operators have become, including joins below a sum.
  std::unordered_map<const tra::Node*, ia::NodePtr> nodes = {};
};

/// Chooses the placement of every value of a logical plan, as one min-sum problem.
///
/// A variable is the strategy of an operator: for each grid axis the key dimension that the axis divides (of a join any
/// dimension of the joined key), or that the axis repeats the work. A sum over a join that nothing else reads is one
/// operator with it. A value that one operator reads moves from its produced to the required layout. For a value with
/// several readers, another variable is its staging layout, and each reader takes it from the cheaper of the two.
/// Tables hold local work and the prices of moves, by the objective. Neighbouring axes of one size are interchangeable,
/// so they take dimensions in the order of labels. Where the objective does not price work, a contraction divides its
/// work over every axis that its extents allow, unless a constraint says otherwise.
///
/// Source: Dechter's bucket elimination (optimizer/min_sum/min_sum.h).
class PlacementProblem {
 public:
  PlacementProblem(const tra::Plan& plan, const model::PlacementConstraints& constraints,
                   std::shared_ptr<layouts::PlacementCache> cache);
  PlacementProblem(const PlacementProblem&) = delete;
  PlacementProblem& operator=(const PlacementProblem&) = delete;

  const division::LabelClasses& labels() const { return labels_; }
  /// The best placement; with `only`, operators that have one of these labels divide no other ones. Nothing where no
  /// placement is allowed.
  std::optional<PlacementSolution> solve(const std::optional<std::vector<int64_t>>& only = {},
                                         const min_sum::Limits& limits = {});
  /// Whether the problem lists all layouts that values may have in plans: then its optimum is the least cost of a plan.
  bool complete() const { return model::lists_all_sources(model_); }
  /// A good placement with a bound that holds for all layouts of all values: no plan costs less. It is no more
  /// expensive than the completed warm starts. Only for graphs without pins. Empty if none was found.
  std::optional<PlacementSolution> bounded(const min_sum::Limits& limits = {});
  /// The cheapest placement that costs less than `most` and takes at most `limit` bytes on each site, of small graphs.
  solvers::Searched<PlacementSolution> within(int64_t limit, double most) const;
  /// For each warm start of the constraints, a placement that completes it; empty where none was found.
  std::vector<std::optional<PlacementSolution>> warm_starts(const min_sum::Limits& limits = {});

 private:
  void price_strategies();
  double weight_of_flops() const;
  const std::vector<std::optional<solvers::Completion>>& completions(const min_sum::Limits& limits);
  const model::MinSumTables& tables();
  std::optional<min_sum::Solution> solution_of(const std::optional<std::vector<int64_t>>& only,
                                               const min_sum::Limits& limits);
  PlacementSolution lowered(const model::Choice& choice, double bound, bool exact) const;
  std::vector<double> restricted(size_t v, const std::vector<int64_t>& only) const;
  std::vector<int64_t> divided_labels(const model::Vertex& vertex, const model::Strategy& strategy) const;

  const tra::Plan plan_;
  const model::PlacementConstraints constraints_;
  std::shared_ptr<layouts::PlacementCache> cache_;
  std::unique_lock<std::mutex> turn_;  ///< problems that share a cache take turns
  division::LabelClasses labels_;
  std::vector<model::Vertex> vertices_;
  std::vector<std::vector<double>> costs_;  ///< of vertices, by strategy
  model::PlacementModel model_;             ///< of the above
  std::optional<model::MinSumTables> tables_;
  std::vector<std::optional<solvers::Completion>> completions_;
};

}  // namespace joinsum::optimizer

#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "optimizer/placement/ways.h"
#include "optimizer/search/min_sum.h"

namespace joinsum::optimizer {

/// A placement of every value of a logical plan.
struct Placed {
  ia::Plan plan;
  double lower_bound = 0;  ///< no choice of placements of the problem costs less
  bool exact = false;      ///< the choice is proven best
  /// What each operator has become, also joins that run below a sum.
  std::unordered_map<const tra::Node*, ia::NodePtr> nodes = {};
};

/// A placement whose plan fits a limit of bytes per site.
struct PlacedWithin {
  std::optional<Placed> placed;
  bool complete = false;  ///< whether it is the cheapest one, or there is none
};

/// Chooses where every value of a logical plan lies, as one min-sum problem.
///
/// A variable says how an operator runs: for each grid axis, which of its key dimensions the axis divides (of a join,
/// any dimension of the joined key), or that the axis repeats the work. A sum over a join that nothing else reads is
/// one operator with it. A value that one operator reads moves from where it is made to where it is needed; of one with
/// several readers another variable says where it is put beside, once for all of them, and each takes it from the
/// cheaper place. Tables hold local work and the price of moves, by the objective. Axes of one size next to each other
/// are interchangeable, so they take dimensions in the order of labels. Under `paper_floats` and `wire_bytes` a
/// contraction divides its work over every axis that its extents allow, unless a demand says how it runs.
///
/// Source: design.md's decision 7 and Dechter's bucket elimination (optimizer/search/min_sum.h).
class PlacementProblem {
 public:
  PlacementProblem(const tra::Plan& plan, const PlacementDemands& demands, std::shared_ptr<PlacementMemory> memory);
  ~PlacementProblem();
  PlacementProblem(const PlacementProblem&) = delete;
  PlacementProblem& operator=(const PlacementProblem&) = delete;

  const Labels& labels() const;
  /// The best placement; with `only`, operators that have one of these labels divide no other ones. Nothing where no
  /// placement is allowed.
  std::optional<Placed> solve(const std::optional<std::vector<int64_t>>& only = {},
                              const MinSumLimits& limits = {}) const;
  /// Whether the problem's layouts of each value are all that plans may have: then its optimum is a plan's least cost.
  bool whole() const;
  /// A good placement with a bound that holds for all layouts of all values: no plan costs less. Of graphs without
  /// pins. Nothing where none was found.
  /// It is no dearer than what `given` makes.
  std::optional<Placed> bounded(const MinSumLimits& limits = {}) const;
  /// The cheapest placement that costs less than `most` and keeps at most `limit` bytes on each site, of small graphs.
  PlacedWithin within(int64_t limit, double most) const;
  /// For each part of a plan that the demands give, a placement that has it; nothing where none was found, or where
  /// its plan costs more than `most`.
  std::vector<std::optional<Placed>> given(double most, const MinSumLimits& limits = {}) const;

 private:
  class Builder;
  std::unique_ptr<Builder> builder_;
};

}  // namespace joinsum::optimizer

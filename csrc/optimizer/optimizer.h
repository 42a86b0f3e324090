#pragma once

#include <optional>
#include <string>
#include <vector>

#include "optimizer/placement_problem.h"
#include "optimizer/rules/search.h"

namespace joinsum::optimizer {

/// A warm start: a partial plan, which the search completes. It gives the placements of inputs, and the staging
/// placements of values by the names of the logical plan; or requests that every site do all the work.
struct PartialPlan {
  model::InputPlacements inputs = {};
  model::InputPlacements values = {};
  bool everywhere = false;
};

struct OptimizeOptions {
  cost::Objective minimize = cost::Objective::kSeconds;
  cost::Cluster cluster = {};
  /// Placements of values, by the names of outputs and of nodes of the logical plan. A pinned output stays there; all
  /// readers of another pinned value take it from there, so only the placement phase then creates plans.
  model::InputPlacements pins = {};
  /// Whether `verify` must accept every candidate.
  bool verify = false;
  /// The phases (`phase_names`) and rules to leave out, by name.
  std::vector<std::string> without = {};
  /// The most plans that the rewriting phase considers.
  int64_t plans = 400;
  /// Seconds after which the best plan so far is returned, marked as such.
  std::optional<double> seconds = {};
  /// The search also starts from these, and its result is no more expensive than any of them completed. `inputs` and
  /// `pins` hold for them as well.
  std::vector<PartialPlan> warm_starts = {};
};

/// A plan that was considered, and its origin.
struct Candidate {
  std::string name;  ///< `placement`, `divide X[0]`, `rule MM-2`, `operator by operator`; `… (repeats work)`
  ia::Plan plan;
  rules::Score score;
  std::vector<rules::Step> steps;  ///< rules that were applied to it, in order
  bool exact = false;              ///< proven best of the placements that it was chosen from
};

struct PhaseReport {
  std::string name;
  double seconds = 0;
  int64_t plans = 0;  ///< that it added or considered
  double best = 0;    ///< objective of the best plan after it
};

struct Optimized {
  /// All candidates, the best first; equal plans once.
  std::vector<Candidate> candidates;
  std::vector<PhaseReport> phases;
  bool out_of_time = false;
  /// The completed `OptimizeOptions::warm_starts`; nothing for one that no placement completes.
  std::vector<std::optional<ia::Plan>> warm_starts = {};
};

/// The phases in their order: `lower`, `placement`, `products`, `rewrite`.
const std::vector<std::string>& phase_names();

/// Finds physical plans of a logical one for the sites of `grid`; the first candidate is the best by `minimize`, then
/// by flops, then by its number of operators. `inputs` says where inputs start; one that is not named may start
/// anywhere. Under `paper_floats` and `wire_bytes` plans that repeat the work of a contraction come last: they move
/// nothing, so they would always win. Raises PlanError for an unknown phase, rule or value to pin, for pins that
/// contradict where inputs start, and where no plan fits the cluster's memory. Sources: TRA paper, section 5;
/// PlacementProblem; rules/search.h.
Optimized optimize(const tra::Plan& plan, const ia::Grid& grid, const model::InputPlacements& inputs,
                   const OptimizeOptions& options = {});

}  // namespace joinsum::optimizer

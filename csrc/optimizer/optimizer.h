#pragma once

#include <optional>
#include <string>
#include <vector>

#include "optimizer/placement/problem.h"
#include "optimizer/search/rewriting.h"

namespace joinsum::optimizer {

/// A part of a plan, which the search fills in: where inputs start, and where values are put for all that read them, by
/// the names of the logical plan's nodes; or that every site does all the work.
struct PartialPlan {
  InputPlacements inputs = {};
  InputPlacements values = {};
  bool everywhere = false;
};

struct OptimizeOptions {
  Objective minimize = Objective::kSeconds;
  Cluster cluster = {};
  /// Where values must be put, by the names of outputs and of the logical plan's nodes. An output stays there; of
  /// another value all readers take it from there, so the placement phase alone then makes plans.
  InputPlacements pins = {};
  /// Has `verify` accept every candidate.
  bool verify = false;
  /// Phases that are left out, by name (`phase_names`), and rules, by name.
  std::vector<std::string> without = {};
  /// Plans that the rewriting phase looks at.
  int64_t plans = 400;
  /// After so many seconds the best plan so far is returned, and marked so.
  std::optional<double> seconds = {};
  /// Parts of plans: the best is looked for around them too, and is no dearer than any of them. What `inputs` and
  /// `pins` say counts in them as well.
  std::vector<PartialPlan> given = {};
  /// Has all of them told; else only those that cost at most a hundredth more than the best placement.
  bool tells_given = false;
};

/// A plan that was considered, with where it comes from.
struct Candidate {
  std::string name;  ///< `placement`, `divide X[0]`, `rule MM-2`, `operator by operator`; `… (repeats work)`
  ia::Plan plan;
  Score score;
  std::vector<Step> steps;  ///< rules that were applied to it, in order
  bool exact = false;       ///< proven best of the placements that it was chosen from
};

struct PhaseReport {
  std::string name;
  double seconds = 0;
  int64_t plans = 0;  ///< that it added or looked at
  double best = 0;    ///< objective of the best plan after it
};

struct Optimized {
  /// All candidates, the best first; equal plans once.
  std::vector<Candidate> candidates;
  std::vector<PhaseReport> phases;
  bool out_of_time = false;
  /// The plans that `OptimizeOptions::given` became; nothing where there is none, or none that is told.
  std::vector<std::optional<ia::Plan>> given = {};
};

/// The phases in their order: `lower`, `placement`, `products`, `rewrite`.
const std::vector<std::string>& phase_names();

/// Finds physical plans of a logical one for the sites of `grid`; the first candidate is the best by `minimize`, then
/// by flops, then by its number of operators. `inputs` says where inputs start; one that is not named may start
/// anywhere. Under `paper_floats` and `wire_bytes` plans that repeat the work of a contraction come last: moving
/// nothing, they would always win. Raises PlanError for an unknown phase, rule or value to pin, for pins that
/// contradict where inputs start, and where no plan fits the cluster's memory. Sources: TRA paper, section 5;
/// PlacementProblem; search/rewriting.h.
Optimized optimize(const tra::Plan& plan, const ia::Grid& grid, const InputPlacements& inputs,
                   const OptimizeOptions& options = {});

}  // namespace joinsum::optimizer

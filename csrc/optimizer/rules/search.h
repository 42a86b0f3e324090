#pragma once

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "optimizer/min_sum/deadline.h"
#include "optimizer/rules/rewrite.h"
#include "optimizer/rules/score.h"

namespace joinsum::optimizer::rules {

/// When a search stops. Without a deadline it is deterministic.
struct SearchLimits {
  int64_t plans = 3000;                                   ///< that are considered, each once
  double cost = std::numeric_limits<double>::infinity();  ///< of plans that are followed, by the objective
  min_sum::Deadline deadline;
};

/// A rule that was applied, with the objective before and after.
struct Step {
  std::string rule;
  std::string node;
  double before = 0;
  double after = 0;
};

struct Found {
  ia::Plan plan;
  Score score;
  std::vector<Step> steps;  ///< from the plan that the search began with
  int64_t plans = 0;        ///< considered
  bool complete = false;    ///< no plan that the rules reach was left out
  bool out_of_time = false;
};

/// What a search needs: rules, prices, and the owner of the nodes that it creates.
struct Search {
  std::vector<const Rule*> rules;
  Pricer& pricer;
  Interner& interner;
  SearchLimits limits;
};

/// Visits the operators, inputs first, and takes the best rewrite of each if it improves the plan, until none does.
/// None of the three returns a plan that scores worse than `plan`.
Found greedy(const ia::Plan& plan, const Search& search);

/// Continues from a few best plans of each round, so that it also follows steps that make a plan worse for a while.
Found beam(const ia::Plan& plan, const Search& search);

/// Considers every plan that the rules reach, breadth first.
Found exhaustive(const ia::Plan& plan, const Search& search);

}  // namespace joinsum::optimizer::rules

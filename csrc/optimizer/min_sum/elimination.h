#pragma once

#include <vector>

#include "optimizer/min_sum/candidates.h"

namespace joinsum::optimizer::min_sum {

/// Tables added up and minimised together over one variable, which leaves the table `result`.
struct Group {
  int64_t variable;
  std::vector<int64_t> tables;
  int64_t result;
};

/// What to eliminate when. Tables are numbered: one per variable, one per pair, then the results in their order.
struct Elimination {
  Values order;               // of all variables
  std::vector<Group> groups;  // in the order of their variables
  /// Per table its variables with more than one value: ascending during planning, then as in `order`.
  std::vector<Values> scopes;
  double entries = 0;
  double largest = 0;
  int64_t splits = 0;  // groups beyond one per variable
  bool complete = true;
};

/// Drops dominated values where elimination would take longer than that, and plans.
Elimination plan_elimination(Candidates& candidates, const Limits& limits);

/// What an elimination leaves.
struct Eliminated {
  bool complete = false;   ///< every variable was eliminated before the deadline
  double lower_bound = 0;  ///< no assignment costs less
  std::optional<Values>
      choices;  ///< positions in the domains; none where all assignments are forbidden, or none was found
};

/// Carries out an elimination, which takes until `enough` at most, and reads an assignment from its tables.
Eliminated eliminate(const Candidates& candidates, const Elimination& plan, const Deadline& enough,
                     const Deadline& deadline);

}  // namespace joinsum::optimizer::min_sum

#pragma once

#include <utility>
#include <vector>

#include "sparse/logical/elimination.h"

namespace joinsum::sparse::logical {

/// The cheapest sequence of eliminations that was found.
struct Best {
  bool found = false;    ///< whether one is cheaper than the bound
  bool gave_up = false;  ///< whether there were too many states
  double cost = 0;
  std::vector<std::pair<int64_t, int64_t>> steps;  ///< index and path of each
};

/// Searches all orders through a table of the sets of what is eliminated, without those that cost more than `bound`.
/// The order found is the best of all where what remains is known not to depend on the order in which a set was
/// eliminated, as with exact statistics. Source: Galley, section 5.6.
Best branch_and_bound(const Eliminator& eliminator, Terms& terms, const TermPtr& start, double bound,
                      int64_t most_states);

}  // namespace joinsum::sparse::logical

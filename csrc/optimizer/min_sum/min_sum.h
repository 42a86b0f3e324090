#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "optimizer/min_sum/deadline.h"

namespace joinsum::optimizer::min_sum {

/// The cost of what is forbidden.
constexpr double kForbidden = std::numeric_limits<double>::infinity();

int64_t size_of(const auto& list) { return static_cast<int64_t>(list.size()); }

inline double least_of(const std::vector<double>& table) { return *std::min_element(table.begin(), table.end()); }

/// A sum of tables over variables with finite domains: one table per variable, and one for each pair that interacts.
/// An entry is a cost: any finite number, or +infinity where a value or a pair of values is forbidden.
class Problem {
 public:
  /// Entries of a table, row-major, which several pairs may share.
  using Entries = std::shared_ptr<const std::vector<double>>;

  /// The tables given for one pair, added up: row-major, `first` < `second`.
  struct Pair {
    int64_t first;
    int64_t second;
    Entries table;
    double least;  // of the table's entries
  };

  /// Adds a variable with the values 0, 1, ..., unary.size()-1, which cost `unary`. Returns the variable's index.
  int64_t add_variable(std::vector<double> unary);
  /// Adds a row-major table over the values of `a` times those of `b`. Several tables on one pair add up.
  void add_pair(int64_t a, int64_t b, std::vector<double> table);
  void add_pair(int64_t a, int64_t b, Entries table);

  int64_t variables() const { return static_cast<int64_t>(unary_.size()); }
  int64_t values(int64_t variable) const { return static_cast<int64_t>(unary_.at(variable).size()); }
  const std::vector<double>& unary(int64_t variable) const { return unary_.at(variable); }
  const std::vector<Pair>& pairs() const { return pairs_; }

  /// The sum at `assignment`, which has one value per variable.
  double cost(const std::vector<int64_t>& assignment) const;

 private:
  std::vector<std::vector<double>> unary_;
  std::vector<Pair> pairs_;
  std::map<std::pair<int64_t, int64_t>, int64_t> position_;
};

/// `table_entries` of eliminations that are to be quick: of plans that a bound will improve, and of graphs with many
/// vertices, so that models of many layers are planned in seconds.
constexpr double kFewEntries = 1e6;

struct Limits {
  /// Most entries that one elimination may visit: the product of the domains of the variable and of its neighbours.
  /// One entry takes 1 to 2 ns; an elimination keeps its entries, divided by the variable's domain, 8 bytes each.
  double table_entries = 5e7;
  /// When to stop and return the best so far. With a deadline, low caps are tried before `table_entries`.
  Deadline deadline;
};

struct Solution {
  std::vector<int64_t> values;
  /// `Problem::cost` at `values`.
  double cost;
  /// No assignment costs less.
  double lower_bound;
  /// Whether `values` is proven to cost the least; then `lower_bound` is `cost`.
  bool exact;
  /// Entries of the largest elimination.
  int64_t largest_table;
};

/// Finds an assignment of least cost, and raises PlanError if every assignment is forbidden.
///
/// Values that are forbidden are dropped, and where elimination would take long also those that are no better than
/// another value whatever the neighbours choose. Then the variables are eliminated one by one: the tables that mention
/// a variable are added up and minimised over it, which leaves a table over its neighbours. Values follow in the
/// opposite order. The order of elimination is the cheapest of greedy ones by least weight and by least fill; where it
/// may pay, ties are broken by several random seeds. Time grows with the product of the domains around a variable, so
/// trees and narrow graphs of any length are quick.
///
/// An elimination beyond `limits.table_entries` is split in groups of tables that are minimised separately, which
/// bounds the cost from below. The values that follow are then improved one at a time and pair by pair until no
/// change gains. So lower_bound <= least cost <= cost always, up to the rounding of sums of doubles, and the two meet
/// wherever nothing had to be split. With forbidden pairs, a split or a deadline may leave no allowed assignment in
/// reach: that also raises PlanError, and says so.
///
/// The same problem and limits give the same solution if there is no deadline. Of equally good values, each choice
/// takes the lowest.
///
/// Source: Dechter, Bucket elimination: a unifying framework for reasoning, 1999; Dechter and Rish, Mini-buckets: a
/// general scheme for bounded inference, 2003; dropped values: Goldstein, Efficient rotamer elimination, 1994;
/// improvement: Besag, On the statistical analysis of dirty pictures (iterated conditional modes), 1986.
Solution solve(const Problem& problem, const Limits& limits = {});

}  // namespace joinsum::optimizer::min_sum

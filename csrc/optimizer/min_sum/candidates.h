#pragma once

#include <vector>

#include "optimizer/min_sum/deadline.h"
#include "optimizer/min_sum/min_sum.h"

namespace joinsum::optimizer::min_sum {

using Values = std::vector<int64_t>;
using Table = std::vector<double>;

/// The table of a pair, seen from one of its two variables.
struct Neighbour {
  int64_t variable;  // the other one
  const double* table;
  int64_t own_stride;
  int64_t other_stride;
  double least;

  double at(int64_t own, int64_t other) const { return table[own * own_stride + other * other_stride]; }
};

Neighbour seen_from(const Problem& problem, const Problem::Pair& pair, int64_t variable);

/// A problem with the values that are still worth choosing, ascending.
struct Candidates {
  const Problem& problem;
  std::vector<std::vector<Neighbour>> neighbours;
  std::vector<Values> domains;

  explicit Candidates(const Problem& of);
  void check_not_empty(int64_t x) const;
};

/// What each value in the domain of `x` costs beside the neighbours' `values`, but for the neighbour `except`.
Table costs_beside(const Candidates& candidates, int64_t x, const Values& values, int64_t except);

/// Drops values that some neighbour forbids (arc consistency).
void drop_unsupported(Candidates& candidates, const Deadline& deadline);

/// Drops values that another one dominates; of equals the lowest stays.
void drop_dominated(Candidates& candidates, const Deadline& deadline);

/// Entries that one round of `drop_dominated` reads, about.
double entries_to_compare(const Candidates& candidates);

}  // namespace joinsum::optimizer::min_sum

#include "optimizer/min_sum/candidates.h"

#include <set>

#include "base/check.h"

namespace joinsum::optimizer::min_sum {
namespace {

/// Whether each neighbour has a value that is allowed beside `value` of `x`.
bool supported(const Candidates& candidates, int64_t x, int64_t value) {
  return std::all_of(candidates.neighbours[x].begin(), candidates.neighbours[x].end(), [&](const Neighbour& pair) {
    const Values& others = candidates.domains[pair.variable];
    return std::any_of(others.begin(), others.end(), [&](int64_t other) { return pair.at(value, other) < kForbidden; });
  });
}

/// Drops values of `x` that some neighbour forbids (arc consistency). Returns whether it dropped any.
bool drop_unsupported(Candidates& candidates, int64_t x) {
  const auto dropped =
      std::erase_if(candidates.domains[x], [&](int64_t value) { return !supported(candidates, x, value); });
  candidates.check_not_empty(x);
  return dropped > 0;
}

/// The neighbours' values that are cheapest beside `value` of `x`.
Values cheapest_beside(const Candidates& candidates, int64_t x, int64_t value) {
  Values out;
  for (const Neighbour& pair : candidates.neighbours[x]) {
    const Values& others = candidates.domains[pair.variable];
    double least = kForbidden;
    out.push_back(others.front());
    for (const int64_t other : others) {
      const double cost = pair.at(value, other);
      if (cost < least) out.back() = other;
      least = std::min(least, cost);
    }
  }
  return out;
}

/// Most that `better` costs above `worse` over the values of one neighbour.
double greatest_excess(const Neighbour& pair, const Values& others, int64_t better, int64_t worse) {
  double greatest = -kForbidden;
  for (const int64_t other : others) {
    const double base = pair.at(worse, other);
    if (base < kForbidden) greatest = std::max(greatest, pair.at(better, other) - base);
  }
  return greatest;
}

/// Whether `better` costs no more than `worse` whatever the neighbours choose.
bool dominates(const Candidates& candidates, int64_t x, int64_t better, int64_t worse) {
  double excess = candidates.problem.unary(x)[better] - candidates.problem.unary(x)[worse];
  for (const Neighbour& pair : candidates.neighbours[x]) {
    excess += greatest_excess(pair, candidates.domains[pair.variable], better, worse);
  }
  return excess <= 0;
}

/// Drops values of `x` that another one dominates; of equals the lowest stays. Returns whether it dropped any.
bool drop_dominated(Candidates& candidates, int64_t x, const Deadline& deadline) {
  Values& domain = candidates.domains[x];
  const int64_t before = size_of(domain);
  for (int64_t i = before - 1; i >= 0 && domain.size() > 1 && !expired(deadline); --i) {
    // A value that costs more beside these is seen not to dominate without a closer look.
    const Table costs = costs_beside(candidates, x, cheapest_beside(candidates, x, domain[i]), x);
    for (int64_t k = 0; k < size_of(domain); ++k) {
      if (k == i || costs[k] > costs[i] || !dominates(candidates, x, domain[k], domain[i])) continue;
      domain.erase(domain.begin() + i);
      break;
    }
  }
  return size_of(domain) < before;
}

/// Calls `drop` on each variable, and again on those whose neighbours' domains have shrunk since.
void until_stable(const Candidates& candidates, const Deadline& deadline, const auto& drop) {
  std::set<int64_t> pending;
  for (int64_t x = 0; x < size_of(candidates.domains); ++x) pending.insert(x);
  while (!pending.empty()) {
    std::set<int64_t> next;
    for (const int64_t x : pending) {
      if (expired(deadline)) return;
      if (!drop(x)) continue;
      for (const Neighbour& pair : candidates.neighbours[x]) next.insert(pair.variable);
    }
    pending = std::move(next);
  }
}

}  // namespace

Neighbour seen_from(const Problem& problem, const Problem::Pair& pair, int64_t variable) {
  const int64_t width = problem.values(pair.second);
  if (variable == pair.first) return {pair.second, pair.table->data(), width, 1, pair.least};
  return {pair.first, pair.table->data(), 1, width, pair.least};
}

Candidates::Candidates(const Problem& of) : problem(of), neighbours(of.variables()), domains(of.variables()) {
  for (const auto& pair : of.pairs()) {
    neighbours[pair.first].push_back(seen_from(of, pair, pair.first));
    neighbours[pair.second].push_back(seen_from(of, pair, pair.second));
  }
  for (int64_t x = 0; x < of.variables(); ++x) {
    for (int64_t value = 0; value < of.values(x); ++value) {
      if (of.unary(x)[value] < kForbidden) domains[x].push_back(value);
    }
    check_not_empty(x);
  }
}

void Candidates::check_not_empty(int64_t x) const {
  JOINSUM_USER_CHECK(!domains[x].empty(),
                     "min_sum: no assignment is allowed: a variable's values are all forbidden: variable=", x,
                     ", values=", problem.values(x));
}

Table costs_beside(const Candidates& candidates, int64_t x, const Values& values, int64_t except) {
  const Values& domain = candidates.domains[x];
  Table out(domain.size());
  for (size_t i = 0; i < out.size(); ++i) out[i] = candidates.problem.unary(x)[domain[i]];
  for (size_t n = 0; n < values.size(); ++n) {
    const Neighbour& pair = candidates.neighbours[x][n];
    if (pair.variable == except) continue;
    for (size_t i = 0; i < out.size(); ++i) out[i] += pair.at(domain[i], values[n]);
  }
  return out;
}

void drop_unsupported(Candidates& candidates, const Deadline& deadline) {
  until_stable(candidates, deadline, [&](int64_t x) { return drop_unsupported(candidates, x); });
}

void drop_dominated(Candidates& candidates, const Deadline& deadline) {
  until_stable(candidates, deadline, [&](int64_t x) { return drop_dominated(candidates, x, deadline); });
}

double entries_to_compare(const Candidates& candidates) {
  double out = 0;
  for (int64_t x = 0; x < size_of(candidates.domains); ++x) {
    const double own = static_cast<double>(candidates.domains[x].size());
    for (const Neighbour& pair : candidates.neighbours[x]) {
      out += own * (own + static_cast<double>(candidates.domains[pair.variable].size()));
    }
  }
  return out;
}

}  // namespace joinsum::optimizer::min_sum

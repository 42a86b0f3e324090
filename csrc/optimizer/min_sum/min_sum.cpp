#include "optimizer/min_sum/min_sum.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "optimizer/min_sum/elimination.h"
#include "optimizer/min_sum/improvement.h"

namespace joinsum::optimizer::min_sum {
namespace {

void check_entries(const Table& table, const char* what, const Values& where) {
  for (const double entry : table) {
    JOINSUM_USER_CHECK(!std::isnan(entry) && entry != -kForbidden,
                       "min_sum: an entry is neither a finite number nor +infinity: ", what, "=", where,
                       ", entry=", entry);
  }
}

/// Eliminates under one cap. The cost is infinite if no allowed assignment turns up; raises if none exists.
Solution attempt(Candidates& candidates, const Limits& limits) {
  // An assignment and its improvement need time too.
  const Deadline enough = part_of(limits.deadline, 0.8);
  const Elimination plan = plan_elimination(candidates, {limits.table_entries, enough});
  auto [complete, bound, choices] = eliminate(candidates, plan, enough, limits.deadline);
  const bool eliminated = complete && plan.splits == 0;
  const int64_t largest = static_cast<int64_t>(plan.largest);
  JOINSUM_USER_CHECK(bound < kForbidden, "min_sum: no assignment is allowed: variables=", candidates.domains.size());
  if (!choices) return {{}, kForbidden, bound, false, largest};
  if (!eliminated) improve(candidates, *choices, limits.deadline);
  for (int64_t x = 0; x < size_of(*choices); ++x) (*choices)[x] = candidates.domains[x][(*choices)[x]];
  const double cost = candidates.problem.cost(*choices);
  return {std::move(*choices), cost, eliminated ? cost : bound, eliminated, largest};
}

/// Keeps the better assignment and the better bound of the two.
void merge(Solution& best, Solution next) {
  best.lower_bound = next.exact ? next.lower_bound : std::max(best.lower_bound, next.lower_bound);
  best.exact |= next.exact;
  best.largest_table = std::max(best.largest_table, next.largest_table);
  if (next.cost < best.cost || next.exact) {
    best.values = std::move(next.values);
    best.cost = next.cost;
  }
}

/// Caps to try in turn. An elimination that the deadline interrupts is worth less than a complete one with splits.
std::vector<double> caps(const Limits& limits) {
  std::vector<double> out;
  if (limits.deadline) out = {1e4, 1e6};
  std::erase_if(out, [&](double cap) { return cap >= limits.table_entries; });
  out.push_back(limits.table_entries);
  return out;
}

}  // namespace

int64_t Problem::add_variable(std::vector<double> unary) {
  const int64_t variable = variables();
  JOINSUM_USER_CHECK(!unary.empty(), "min_sum: a variable has no values: variable=", variable);
  check_entries(unary, "variable", {variable});
  unary_.push_back(std::move(unary));
  return variable;
}

void Problem::add_pair(int64_t a, int64_t b, std::vector<double> table) {
  add_pair(a, b, std::make_shared<const std::vector<double>>(std::move(table)));
}

void Problem::add_pair(int64_t a, int64_t b, Entries table) {
  for (const int64_t x : {a, b}) {
    JOINSUM_USER_CHECK(x >= 0 && x < variables(), "min_sum: a pair names an unknown variable: pair=", Values{a, b},
                       ", variable=", x, ", variables=", variables());
  }
  JOINSUM_USER_CHECK(a != b, "min_sum: a pair names one variable twice: variable=", a);
  const int64_t rows = values(a);
  const int64_t columns = values(b);
  JOINSUM_USER_CHECK(size_of(*table) == rows * columns, "min_sum: a table does not fit its pair: pair=", Values{a, b},
                     ", entries=", table->size(), ", values=", Values{rows, columns});
  check_entries(*table, "pair", {a, b});
  const auto [found, added] = position_.try_emplace(std::minmax(a, b), size_of(pairs_));
  if (added && a < b) {
    pairs_.push_back({a, b, table, least_of(*table)});
    return;
  }
  if (added) pairs_.push_back({b, a, nullptr, 0});
  Pair& pair = pairs_[found->second];
  std::vector<double> sum = pair.table != nullptr ? *pair.table : std::vector<double>(table->size(), 0);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) sum[a < b ? i * columns + j : j * rows + i] += (*table)[i * columns + j];
  }
  pair.least = least_of(sum);
  pair.table = std::make_shared<const std::vector<double>>(std::move(sum));
}

double Problem::cost(const std::vector<int64_t>& assignment) const {
  JOINSUM_USER_CHECK(size_of(assignment) == variables(),
                     "min_sum: an assignment needs one value per variable: values=", assignment.size(),
                     ", variables=", variables());
  double out = 0;
  for (int64_t x = 0; x < variables(); ++x) {
    JOINSUM_USER_CHECK(assignment[x] >= 0 && assignment[x] < values(x),
                       "min_sum: a variable has no such value: variable=", x, ", value=", assignment[x],
                       ", values=", values(x));
    out += unary_[x][assignment[x]];
  }
  for (const Pair& pair : pairs_) {
    out += (*pair.table)[assignment[pair.first] * values(pair.second) + assignment[pair.second]];
  }
  return out;
}

Solution solve(const Problem& problem, const Limits& limits) {
  JOINSUM_USER_CHECK(limits.table_entries >= 1, "min_sum: a limit is below 1: table_entries=", limits.table_entries);
  Candidates candidates(problem);
  drop_unsupported(candidates, part_of(limits.deadline, 0.2));
  Solution best{{}, kForbidden, -kForbidden, false, 0};
  for (const double cap : caps(limits)) {
    if (best.cost < kForbidden && (best.exact || expired(limits.deadline))) break;
    merge(best, attempt(candidates, {cap, limits.deadline}));
    if (best.cost <= best.lower_bound) best.exact = true;
  }
  JOINSUM_USER_CHECK(best.cost < kForbidden,
                     "min_sum: found no allowed assignment within the limits, though there may be one: variables=",
                     problem.variables(), ", table_entries=", limits.table_entries,
                     ", past the deadline=", expired(limits.deadline) ? "yes" : "no");
  if (best.exact) best.lower_bound = best.cost;
  return best;
}

}  // namespace joinsum::optimizer::min_sum

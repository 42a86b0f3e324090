#include "optimizer/search/min_sum.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <numeric>
#include <set>
#include <tuple>

#include "base/check.h"
#include "base/dims.h"

namespace joinsum::optimizer {
namespace {

using Clock = std::chrono::steady_clock;
using Deadline = std::optional<Clock::time_point>;
using Values = std::vector<int64_t>;
using Table = std::vector<double>;

constexpr double kForbidden = std::numeric_limits<double>::infinity();
/// Entries visited between two looks at the clock: a few milliseconds.
constexpr int64_t kEntriesPerCheck = 1'000'000;
/// Dead ends after which the search for an allowed assignment gives up, in time and past the deadline.
constexpr int64_t kDeadEnds = 200'000;
constexpr int64_t kLateDeadEnds = 1'000;
/// Sweeps of the local improvement; it stops by itself long before, unless rounding makes it go in circles.
constexpr int64_t kSweeps = 1'000;

bool expired(const Deadline& deadline) { return deadline && Clock::now() >= *deadline; }

/// When `share` of the time until the deadline is gone.
Deadline part_of(const Deadline& deadline, double share) {
  if (!deadline) return std::nullopt;
  const auto now = Clock::now();
  return now + std::chrono::duration_cast<Clock::duration>(share * (*deadline - now));
}

int64_t size_of(const auto& list) { return static_cast<int64_t>(list.size()); }

double least_of(const Table& table) { return *std::min_element(table.begin(), table.end()); }

void check_entries(const Table& table, const char* what, const Values& where) {
  for (const double entry : table) {
    JOINSUM_USER_CHECK(!std::isnan(entry) && entry != -kForbidden,
                       "min_sum: an entry is neither a finite number nor +infinity: ", what, "=", where,
                       ", entry=", entry);
  }
}

/// The table of a pair, seen from one of its two variables.
struct Neighbour {
  int64_t variable;  // the other one
  const double* table;
  int64_t own_stride;
  int64_t other_stride;
  double least;

  double at(int64_t own, int64_t other) const { return table[own * own_stride + other * other_stride]; }
};

Neighbour seen_from(const MinSumProblem& problem, const MinSumProblem::Pair& pair, int64_t variable) {
  const int64_t width = problem.values(pair.second);
  if (variable == pair.first) return {pair.second, pair.table.data(), width, 1, pair.least};
  return {pair.first, pair.table.data(), 1, width, pair.least};
}

/// A problem with the values that are still worth choosing, ascending.
struct Candidates {
  const MinSumProblem& problem;
  std::vector<std::vector<Neighbour>> neighbours;
  std::vector<Values> domains;

  explicit Candidates(const MinSumProblem& of) : problem(of), neighbours(of.variables()), domains(of.variables()) {
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

  void check_not_empty(int64_t x) const {
    JOINSUM_USER_CHECK(!domains[x].empty(),
                       "min_sum: no assignment is allowed: a variable's values are all forbidden: variable=", x,
                       ", values=", problem.values(x));
  }
};

// --- Values that no solution needs -----------------------------------------------------------------------------------

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

/// What each value in the domain of `x` costs beside the neighbours' `values`, but for the neighbour `except`.
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

void drop_unsupported(Candidates& candidates, const Deadline& deadline) {
  until_stable(candidates, deadline, [&](int64_t x) { return drop_unsupported(candidates, x); });
}

void drop_dominated(Candidates& candidates, const Deadline& deadline) {
  until_stable(candidates, deadline, [&](int64_t x) { return drop_dominated(candidates, x, deadline); });
}

/// Entries that one round of `drop_dominated` reads, about.
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

// --- The order of elimination ----------------------------------------------------------------------------------------

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

enum class Preference { kLeastWeight, kLeastFill };

/// Eliminates variables on paper: scopes only.
class Planner {
 public:
  /// `seed` disturbs the weights, and so breaks ties in another way; that of 0 leaves them.
  Planner(const Candidates& candidates, Preference preference, uint64_t seed, double most_entries)
      : candidates_(candidates),
        preference_(preference),
        most_entries_(most_entries),
        tables_(candidates.domains.size()),
        neighbours_(candidates.domains.size()),
        scores_(candidates.domains.size()) {
    for (int64_t x = 0; x < size_of(tables_); ++x) {
      const double disturbance = static_cast<double>(hash_mix(seed, x) % 1024) / 1024;
      weights_.push_back(std::log(extent(x)) + (seed > 0 ? disturbance : 0));
    }
    for (int64_t x = 0; x < size_of(tables_); ++x) add_table({x});
    for (const auto& pair : candidates.problem.pairs()) add_table({pair.first, pair.second});
    for (int64_t x = 0; x < size_of(tables_); ++x) queue_.insert({scores_[x] = score(x), x});
  }

  /// Past the deadline the rest of the variables follow in the order of their scores, without groups.
  Elimination plan(const Deadline& deadline) {
    while (!queue_.empty() && !expired(deadline)) {
      const int64_t x = queue_.begin()->second;
      queue_.erase(queue_.begin());
      plan_.order.push_back(x);
      eliminate(x);
    }
    plan_.complete = queue_.empty();
    for (const auto& entry : queue_) plan_.order.push_back(entry.second);
    sort_scopes();
    return std::move(plan_);
  }

 private:
  using Score = std::pair<double, double>;

  double extent(int64_t x) const { return static_cast<double>(candidates_.domains[x].size()); }

  double entries(const Values& scope) const {
    return std::accumulate(scope.begin(), scope.end(), 1.0,
                           [&](double product, int64_t x) { return product * extent(x); });
  }

  /// Variables with one value are as good as constants. Returns the table's number.
  int64_t add_table(Values scope) {
    std::erase_if(scope, [&](int64_t x) { return candidates_.domains[x].size() == 1; });
    const int64_t table = size_of(plan_.scopes);
    for (const int64_t x : scope) {
      tables_[x].insert(table);
      for (const int64_t y : scope) {
        if (x != y && neighbours_[x].insert(y).second) weights_[x] += std::log(extent(y));
      }
    }
    plan_.scopes.push_back(std::move(scope));
    return table;
  }

  Score score(int64_t x) const { return {preference_ == Preference::kLeastFill ? fill(x) : 0, weights_[x]}; }

  /// Entries over the pairs of neighbours that do not interact yet. Many neighbours would take long to count, and
  /// make a table beyond any limit.
  double fill(int64_t x) const {
    constexpr size_t kMany = 40;
    const auto& around = neighbours_[x];
    if (around.size() > kMany) return kForbidden;
    double out = 0;
    for (auto left = around.begin(); left != around.end(); ++left) {
      for (auto right = std::next(left); right != around.end(); ++right) {
        if (!neighbours_[*left].contains(*right)) out += extent(*left) * extent(*right);
      }
    }
    return out;
  }

  /// Divides the tables of `x` in groups within the limit, largest first, each into the first group that has room.
  std::vector<std::pair<Values, Group>> split(int64_t x) const {
    std::vector<int64_t> tables(tables_[x].begin(), tables_[x].end());
    Values all(neighbours_[x].begin(), neighbours_[x].end());
    all.insert(std::upper_bound(all.begin(), all.end(), x), x);
    if (entries(all) <= most_entries_) return {{all, {x, tables, 0}}};
    std::stable_sort(tables.begin(), tables.end(), [&](int64_t left, int64_t right) {
      return entries(plan_.scopes[left]) > entries(plan_.scopes[right]);
    });
    std::vector<std::pair<Values, Group>> out;
    for (const int64_t table : tables) {
      const bool placed = std::any_of(out.begin(), out.end(), [&](auto& group) {
        Values joint;
        std::set_union(group.first.begin(), group.first.end(), plan_.scopes[table].begin(), plan_.scopes[table].end(),
                       std::back_inserter(joint));
        if (joint.size() > group.first.size() && entries(joint) > most_entries_) return false;
        group.first = std::move(joint);
        group.second.tables.push_back(table);
        return true;
      });
      if (!placed) out.push_back({plan_.scopes[table], {x, {table}, 0}});
    }
    return out;
  }

  void eliminate(int64_t x) {
    if (candidates_.domains[x].size() == 1) return;
    auto groups = split(x);
    plan_.splits += size_of(groups) - 1;
    for (auto& [scope, group] : groups) {
      plan_.entries += entries(scope);
      plan_.largest = std::max(plan_.largest, entries(scope));
      for (const int64_t table : group.tables) {
        for (const int64_t y : plan_.scopes[table]) {
          if (y != x) tables_[y].erase(table);
        }
      }
      std::erase(scope, x);
      group.result = add_table(std::move(scope));
      plan_.groups.push_back(std::move(group));
    }
    for (const int64_t y : neighbours_[x]) {
      neighbours_[y].erase(x);
      weights_[y] -= std::log(extent(x));
    }
    update_scores(x);
  }

  void update_scores(int64_t eliminated) {
    std::set<int64_t> affected = neighbours_[eliminated];
    if (preference_ == Preference::kLeastFill) {
      for (const int64_t y : neighbours_[eliminated]) affected.insert(neighbours_[y].begin(), neighbours_[y].end());
    }
    for (const int64_t y : affected) {
      queue_.erase({scores_[y], y});
      queue_.insert({scores_[y] = score(y), y});
    }
  }

  void sort_scopes() {
    Values position(plan_.order.size());
    for (int64_t i = 0; i < size_of(position); ++i) position[plan_.order[i]] = i;
    for (Values& scope : plan_.scopes) {
      std::sort(scope.begin(), scope.end(), [&](int64_t x, int64_t y) { return position[x] < position[y]; });
    }
  }

  const Candidates& candidates_;
  Preference preference_;
  double most_entries_;
  Elimination plan_;
  std::vector<std::set<int64_t>> tables_;  // per variable, those not yet added up
  std::vector<std::set<int64_t>> neighbours_;
  std::vector<double> weights_;  // logarithms of the entries that eliminating a variable would visit
  std::vector<Score> scores_;
  std::set<std::pair<Score, int64_t>> queue_;
};

Elimination quick_plan(const Candidates& candidates, const MinSumLimits& limits) {
  return Planner(candidates, Preference::kLeastWeight, 0, limits.table_entries).plan(limits.deadline);
}

/// Looks for an elimination cheaper than `best`, as long as that takes less time than it may save.
Elimination cheapest_plan(Elimination best, const Candidates& candidates, const MinSumLimits& limits) {
  constexpr uint64_t kSeeds = 12;
  constexpr double kEntriesPerStep = 1e3;  // as long as planning takes for one pair of neighbours
  double steps = 0;
  for (const auto& around : candidates.neighbours) steps += static_cast<double>(around.size() * around.size());
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    for (const Preference preference : {Preference::kLeastFill, Preference::kLeastWeight}) {
      if (best.entries <= kEntriesPerStep * steps) return best;
      Elimination next = Planner(candidates, preference, seed, limits.table_entries).plan(limits.deadline);
      if (expired(limits.deadline)) return best;
      const bool better = std::pair(next.splits, next.entries) < std::pair(best.splits, best.entries);
      if (better) best = std::move(next);
    }
  }
  return best;
}

/// Drops dominated values where elimination would take longer than that, and plans.
Elimination plan_elimination(Candidates& candidates, const MinSumLimits& limits) {
  constexpr double kEntriesPerComparison = 5;
  Elimination first = quick_plan(candidates, limits);
  if (first.splits > 0 || first.entries > kEntriesPerComparison * entries_to_compare(candidates)) {
    drop_dominated(candidates, part_of(limits.deadline, 0.2));
    first = quick_plan(candidates, limits);
  }
  return cheapest_plan(std::move(first), candidates, limits);
}

// --- Elimination -----------------------------------------------------------------------------------------------------

/// A table that is read while a sum is minimised: row-major, the minimised variable first.
struct Operand {
  const double* table;
  int64_t stride;                // of the minimised variable
  std::vector<int64_t> strides;  // of the result's variables but the last; 0 where the table lacks one
};

void add_row(double* __restrict sum, const double* __restrict row, int64_t count) {
  for (int64_t i = 0; i < count; ++i) sum[i] += row[i];
}

/// Lowers each entry to constant + row where that is less.
void lower_row(double* __restrict least, const double* __restrict row, double constant, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const double sum = constant + row[i];
    least[i] = sum < least[i] ? sum : least[i];
  }
}

/// As `lower_row`, over the sum of two rows.
void lower_rows(double* __restrict least, const double* __restrict left, const double* __restrict right,
                double constant, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const double sum = constant + (left[i] + right[i]);
    least[i] = sum < least[i] ? sum : least[i];
  }
}

/// The sum of operands minimised over one variable. Rows run along the result's last variable, which every table
/// that has it holds contiguously.
class Minimum {
 public:
  /// Sizes of the minimised variable, of the result's variables but the last, and of the last.
  Minimum(int64_t choices, std::vector<int64_t> extents, int64_t row)
      : choices_(choices), extents_(std::move(extents)), row_(row), sum_(row) {}

  void add(Operand operand, bool has_last) { (has_last ? along_ : across_).push_back(std::move(operand)); }

  /// The result, or nothing if the deadline passes.
  std::optional<Table> run(const Deadline& deadline) {
    const int64_t rows = std::accumulate(extents_.begin(), extents_.end(), int64_t{1}, std::multiplies<>());
    Table out;
    out.reserve(rows * row_);  // filled row by row: clearing a large table at once would miss a deadline
    Values index(extents_.size(), 0);
    int64_t visited = 0;
    for (int64_t row = 0; row < rows; ++row) {
      visited += choices_ * row_;
      if (visited > kEntriesPerCheck) {
        visited = 0;
        if (expired(deadline)) return std::nullopt;
      }
      out.resize(out.size() + row_, kForbidden);
      for (int64_t choice = 0; choice < choices_; ++choice) lower(out.data() + row * row_, choice);
      advance(index);
    }
    return out;
  }

 private:
  void lower(double* least, int64_t choice) {
    double constant = 0;
    for (const Operand& operand : across_) constant += operand.table[choice * operand.stride];
    if (constant == kForbidden) return;
    const auto row = [&](size_t i) { return along_[i].table + choice * along_[i].stride; };
    if (along_.empty()) {
      *least = std::min(*least, constant);
    } else if (along_.size() == 1) {
      lower_row(least, row(0), constant, row_);
    } else if (along_.size() == 2) {
      lower_rows(least, row(0), row(1), constant, row_);
    } else {
      std::copy_n(row(0), row_, sum_.data());
      for (size_t i = 1; i + 1 < along_.size(); ++i) add_row(sum_.data(), row(i), row_);
      lower_rows(least, sum_.data(), row(along_.size() - 1), constant, row_);
    }
  }

  /// Moves `index` and the operands to the next row.
  void advance(Values& index) {
    for (int64_t d = size_of(extents_) - 1; d >= 0; --d) {
      const bool carry = ++index[d] == extents_[d];
      const int64_t steps = carry ? 1 - extents_[d] : 1;
      for (Operand& operand : along_) operand.table += steps * operand.strides[d];
      for (Operand& operand : across_) operand.table += steps * operand.strides[d];
      if (!carry) return;
      index[d] = 0;
    }
  }

  int64_t choices_;
  std::vector<int64_t> extents_;
  int64_t row_;
  Table sum_;
  std::vector<Operand> along_;   // tables that have the result's last variable
  std::vector<Operand> across_;  // tables that lack it
};

/// Carries out an elimination and reads an assignment from its tables. Choices are positions in the domains.
class Eliminator {
 public:
  Eliminator(const Candidates& candidates, const Elimination& plan)
      : candidates_(candidates), plan_(plan), tables_(plan.scopes.size()), state_(plan.scopes.size(), State::kMissing) {
    const int64_t given = size_of(candidates.domains) + size_of(candidates.problem.pairs());
    std::fill_n(state_.begin(), given, State::kCurrent);
    for (int64_t table = 0; table < given; ++table) {
      if (!read_in_place(table)) tables_[table] = read(table);
    }
  }

  /// Returns whether every variable was eliminated before the deadline.
  bool run(const Deadline& deadline) {
    return std::all_of(plan_.groups.begin(), plan_.groups.end(),
                       [&](const Group& group) { return minimise(group, deadline); }) &&
           plan_.complete;
  }

  /// The sum of the tables that are not yet added up, each at its least.
  double lower_bound() const {
    double out = 0;
    for (int64_t table = 0; table < size_of(tables_); ++table) {
      if (state_[table] != State::kCurrent) continue;
      out += read_in_place(table) ? pair_of(table).least : least_of(tables_[table]);
    }
    return out;
  }

  /// A choice for each variable, from the last of the order to the first, each the best beside those made; goes back
  /// where all values are forbidden, and gives up after many times. An elimination without splits needs no way back.
  std::optional<Values> assign(const Deadline& deadline) const {
    const int64_t variables = size_of(plan_.order);
    const auto tables = tables_by_first_variable();
    std::vector<Table> costs(variables);
    Values choices(variables, 0);
    int64_t dead_ends = 0;
    for (int64_t i = variables - 1; i >= 0;) {
      const int64_t x = plan_.order[i];
      if (costs[x].empty()) costs[x] = costs_of(x, tables[x], choices);
      choices[x] = std::min_element(costs[x].begin(), costs[x].end()) - costs[x].begin();
      if (costs[x][choices[x]] < kForbidden) {
        --i;
        continue;
      }
      costs[x].clear();
      JOINSUM_USER_CHECK(++i < variables, "min_sum: no assignment is allowed: variables=", variables);
      costs[plan_.order[i]][choices[plan_.order[i]]] = kForbidden;
      if (++dead_ends > (expired(deadline) ? kLateDeadEnds : kDeadEnds)) return std::nullopt;
    }
    return choices;
  }

 private:
  enum class State { kMissing, kCurrent, kAddedUp };

  int64_t extent(int64_t x) const { return size_of(candidates_.domains[x]); }

  bool is_pair(int64_t table) const {
    const int64_t pair = table - size_of(candidates_.domains);
    return pair >= 0 && pair < size_of(candidates_.problem.pairs());
  }

  const MinSumProblem::Pair& pair_of(int64_t table) const {
    return candidates_.problem.pairs()[table - size_of(candidates_.domains)];
  }

  /// Whether the table stays where the problem has it: no second copy but while it is added up.
  bool read_in_place(int64_t table) const { return is_pair(table) && plan_.scopes[table].size() == 2; }

  /// A table of the problem over the values that are left, in the order of its scope.
  Table read(int64_t table) const {
    Table out;
    if (!is_pair(table)) {
      for (const int64_t value : candidates_.domains[table]) out.push_back(candidates_.problem.unary(table)[value]);
      return out;
    }
    const Values& scope = plan_.scopes[table];
    const int64_t first = scope.empty() ? pair_of(table).first : scope.front();
    const Neighbour pair = seen_from(candidates_.problem, pair_of(table), first);
    out.reserve(extent(first) * extent(pair.variable));
    for (const int64_t own : candidates_.domains[first]) {
      for (const int64_t other : candidates_.domains[pair.variable]) out.push_back(pair.at(own, other));
    }
    return out;
  }

  /// Per variable of the scope, the distance of entries that differ by one there.
  std::vector<int64_t> strides_of(const Values& scope) const {
    std::vector<int64_t> out(scope.size(), 1);
    for (int64_t d = size_of(scope) - 2; d >= 0; --d) out[d] = out[d + 1] * extent(scope[d + 1]);
    return out;
  }

  Operand operand(int64_t table, const Values& outer) const {
    const Values& scope = plan_.scopes[table];
    const auto strides = strides_of(scope);
    Operand out{tables_[table].data(), strides.front(), {}};
    for (const int64_t x : outer) {
      const auto found = std::find(scope.begin(), scope.end(), x);
      out.strides.push_back(found == scope.end() ? 0 : strides[found - scope.begin()]);
    }
    return out;
  }

  bool minimise(const Group& group, const Deadline& deadline) {
    if (expired(deadline)) return false;
    Values outer = plan_.scopes[group.result];
    const std::optional<int64_t> last = outer.empty() ? std::nullopt : std::optional(outer.back());
    if (last) outer.pop_back();
    std::vector<int64_t> extents;
    for (const int64_t x : outer) extents.push_back(extent(x));
    Minimum minimum(extent(group.variable), std::move(extents), last ? extent(*last) : 1);
    for (const int64_t table : group.tables) {
      if (read_in_place(table)) tables_[table] = read(table);
      minimum.add(operand(table, outer), last && plan_.scopes[table].back() == *last);
    }
    auto result = minimum.run(deadline);
    for (const int64_t table : group.tables) {
      if (read_in_place(table)) Table().swap(tables_[table]);
      if (result) state_[table] = State::kAddedUp;
    }
    if (!result) return false;
    tables_[group.result] = std::move(*result);
    state_[group.result] = State::kCurrent;
    return true;
  }

  std::vector<std::vector<int64_t>> tables_by_first_variable() const {
    std::vector<std::vector<int64_t>> out(plan_.order.size());
    for (int64_t table = 0; table < size_of(tables_); ++table) {
      const Values& scope = plan_.scopes[table];
      if (state_[table] != State::kMissing && !scope.empty()) out[scope.front()].push_back(table);
    }
    return out;
  }

  /// What each value of `x` costs in `tables`, which start with `x`, beside the choices made for their other variables.
  Table costs_of(int64_t x, const std::vector<int64_t>& tables, const Values& choices) const {
    Table out(extent(x), 0);
    for (const int64_t table : tables) {
      const Values& scope = plan_.scopes[table];
      if (read_in_place(table)) {
        const Neighbour pair = seen_from(candidates_.problem, pair_of(table), x);
        const int64_t other = candidates_.domains[pair.variable][choices[pair.variable]];
        for (int64_t i = 0; i < extent(x); ++i) out[i] += pair.at(candidates_.domains[x][i], other);
        continue;
      }
      const auto strides = strides_of(scope);
      const double* entry = tables_[table].data();
      for (size_t d = 1; d < scope.size(); ++d) entry += strides[d] * choices[scope[d]];
      for (int64_t i = 0; i < extent(x); ++i) out[i] += entry[i * strides.front()];
    }
    return out;
  }

  const Candidates& candidates_;
  const Elimination& plan_;
  std::vector<Table> tables_;
  std::vector<State> state_;
};

// --- Local improvement -----------------------------------------------------------------------------------------------

/// Improves an assignment by changing one variable or one pair at a time.
class Improvement {
 public:
  Improvement(const Candidates& candidates, Values& choices) : candidates_(candidates), choices_(choices) {}

  void run(const Deadline& deadline) {
    bool gained = true;
    for (int64_t sweep = 0; gained && sweep < kSweeps; ++sweep) {
      gained = false;
      for (int64_t x = 0; x < size_of(choices_) && !expired(deadline); ++x) gained |= change_one(x);
      if (!gained) gained = change_pairs(deadline);
    }
  }

 private:
  int64_t value(int64_t x) const { return candidates_.domains[x][choices_[x]]; }

  Table costs_of(int64_t x, int64_t except) const {
    Values beside;
    for (const Neighbour& pair : candidates_.neighbours[x]) beside.push_back(value(pair.variable));
    return costs_beside(candidates_, x, beside, except);
  }

  /// A gain that rounding may have made is none.
  static bool gains(double cost, double than) { return cost < than - 1e-12 * std::abs(than); }

  bool change_one(int64_t x) {
    const Table costs = costs_of(x, x);
    const auto best = std::min_element(costs.begin(), costs.end());
    if (!gains(*best, costs[choices_[x]])) return false;
    choices_[x] = best - costs.begin();
    return true;
  }

  bool change_pairs(const Deadline& deadline) {
    bool gained = false;
    for (int64_t x = 0; x < size_of(choices_); ++x) {
      for (const Neighbour& pair : candidates_.neighbours[x]) {
        if (expired(deadline)) return false;
        if (x < pair.variable) gained |= change_two(x, pair);
      }
    }
    return gained;
  }

  bool change_two(int64_t x, const Neighbour& pair) {
    const int64_t y = pair.variable;
    const Table costs = costs_of(x, y);
    const Table other_costs = costs_of(y, x);
    const auto cost = [&](int64_t i, int64_t j) {
      return costs[i] + other_costs[j] + pair.at(candidates_.domains[x][i], candidates_.domains[y][j]);
    };
    const double before = cost(choices_[x], choices_[y]);
    std::pair best(choices_[x], choices_[y]);
    double least = before;
    for (int64_t i = 0; i < size_of(costs); ++i) {
      for (int64_t j = 0; j < size_of(other_costs); ++j) {
        const double candidate = cost(i, j);
        if (candidate < least) best = {i, j};
        least = std::min(least, candidate);
      }
    }
    if (!gains(least, before)) return false;
    std::tie(choices_[x], choices_[y]) = best;
    return true;
  }

  const Candidates& candidates_;
  Values& choices_;
};

/// Eliminates under one cap. The cost is infinite if no allowed assignment turns up; raises if none exists.
MinSumSolution attempt(Candidates& candidates, const MinSumLimits& limits) {
  // An assignment and its improvement need time too.
  const Deadline enough = part_of(limits.deadline, 0.8);
  const Elimination plan = plan_elimination(candidates, {limits.table_entries, enough});
  Eliminator eliminator(candidates, plan);
  const bool eliminated = eliminator.run(enough) && plan.splits == 0;
  const double bound = eliminator.lower_bound();
  const int64_t largest = static_cast<int64_t>(plan.largest);
  JOINSUM_USER_CHECK(bound < kForbidden, "min_sum: no assignment is allowed: variables=", candidates.domains.size());
  auto choices = eliminator.assign(limits.deadline);
  if (!choices) return {{}, kForbidden, bound, false, largest};
  if (!eliminated) Improvement(candidates, *choices).run(limits.deadline);
  for (int64_t x = 0; x < size_of(*choices); ++x) (*choices)[x] = candidates.domains[x][(*choices)[x]];
  const double cost = candidates.problem.cost(*choices);
  return {std::move(*choices), cost, eliminated ? cost : bound, eliminated, largest};
}

/// Keeps the better assignment and the better bound of the two.
void merge(MinSumSolution& best, MinSumSolution next) {
  best.lower_bound = next.exact ? next.lower_bound : std::max(best.lower_bound, next.lower_bound);
  best.exact |= next.exact;
  best.largest_table = std::max(best.largest_table, next.largest_table);
  if (next.cost < best.cost || next.exact) {
    best.values = std::move(next.values);
    best.cost = next.cost;
  }
}

/// Caps to try in turn. An elimination that the deadline interrupts is worth less than a complete one with splits.
std::vector<double> caps(const MinSumLimits& limits) {
  std::vector<double> out;
  if (limits.deadline) out = {1e4, 1e6};
  std::erase_if(out, [&](double cap) { return cap >= limits.table_entries; });
  out.push_back(limits.table_entries);
  return out;
}

}  // namespace

int64_t MinSumProblem::add_variable(std::vector<double> unary) {
  const int64_t variable = variables();
  JOINSUM_USER_CHECK(!unary.empty(), "min_sum: a variable has no values: variable=", variable);
  check_entries(unary, "variable", {variable});
  unary_.push_back(std::move(unary));
  return variable;
}

void MinSumProblem::add_pair(int64_t a, int64_t b, std::vector<double> table) {
  for (const int64_t x : {a, b}) {
    JOINSUM_USER_CHECK(x >= 0 && x < variables(), "min_sum: a pair names an unknown variable: pair=", Values{a, b},
                       ", variable=", x, ", variables=", variables());
  }
  JOINSUM_USER_CHECK(a != b, "min_sum: a pair names one variable twice: variable=", a);
  const int64_t rows = values(a);
  const int64_t columns = values(b);
  JOINSUM_USER_CHECK(size_of(table) == rows * columns, "min_sum: a table does not fit its pair: pair=", Values{a, b},
                     ", entries=", table.size(), ", values=", Values{rows, columns});
  check_entries(table, "pair", {a, b});
  const auto [found, added] = position_.try_emplace(std::minmax(a, b), size_of(pairs_));
  if (added) pairs_.push_back({std::min(a, b), std::max(a, b), std::vector<double>(table.size(), 0), 0});
  Pair& pair = pairs_[found->second];
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) pair.table[a < b ? i * columns + j : j * rows + i] += table[i * columns + j];
  }
  pair.least = least_of(pair.table);
}

double MinSumProblem::cost(const std::vector<int64_t>& assignment) const {
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
    out += pair.table[assignment[pair.first] * values(pair.second) + assignment[pair.second]];
  }
  return out;
}

MinSumSolution solve(const MinSumProblem& problem, const MinSumLimits& limits) {
  JOINSUM_USER_CHECK(limits.table_entries >= 1, "min_sum: a limit is below 1: table_entries=", limits.table_entries);
  Candidates candidates(problem);
  drop_unsupported(candidates, part_of(limits.deadline, 0.2));
  MinSumSolution best{{}, kForbidden, -kForbidden, false, 0};
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

}  // namespace joinsum::optimizer

#include "optimizer/min_sum/elimination.h"

#include <functional>
#include <numeric>

#include "base/check.h"
#include "optimizer/min_sum/rows.h"

namespace joinsum::optimizer::min_sum {
namespace {

/// Entries visited between two checks of the deadline: a few milliseconds.
constexpr int64_t kEntriesPerCheck = 1'000'000;
/// Dead ends after which the search for an allowed assignment gives up, in time and past the deadline.
constexpr int64_t kDeadEnds = 200'000;
constexpr int64_t kLateDeadEnds = 1'000;

/// A table that is read while a sum is minimised: row-major, the minimised variable first.
struct Operand {
  const double* table;
  int64_t stride;                // of the minimised variable
  std::vector<int64_t> strides;  // of the result's variables but the last; 0 where the table lacks one
};

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

  /// Chooses values from the last variable of the order to the first, each the best beside those chosen before.
  /// Backtracks where all values are forbidden, and gives up after many dead ends. An elimination without splits never
  /// backtracks.
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

  const Problem::Pair& pair_of(int64_t table) const {
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

  /// The cost of each value of `x` in `tables`, which start with `x`, beside the choices of their other variables.
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

}  // namespace

Eliminated eliminate(const Candidates& candidates, const Elimination& plan, const Deadline& enough,
                     const Deadline& deadline) {
  Eliminator eliminator(candidates, plan);
  Eliminated out;
  out.complete = eliminator.run(enough);
  out.lower_bound = eliminator.lower_bound();
  if (out.lower_bound < kForbidden) out.choices = eliminator.assign(deadline);
  return out;
}

}  // namespace joinsum::optimizer::min_sum

#include <cmath>
#include <iterator>
#include <numeric>
#include <set>

#include "base/dims.h"
#include "optimizer/min_sum/elimination.h"

namespace joinsum::optimizer::min_sum {
namespace {

enum class Preference { kLeastWeight, kLeastFill };

/// Plans an elimination: computes scopes, but no tables.
class Planner {
 public:
  /// `seed` perturbs the weights, so that ties are broken differently; 0 leaves the weights as they are.
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

Elimination quick_plan(const Candidates& candidates, const Limits& limits) {
  return Planner(candidates, Preference::kLeastWeight, 0, limits.table_entries).plan(limits.deadline);
}

/// Looks for an elimination cheaper than `best`, as long as that takes less time than it may save.
Elimination cheapest_plan(Elimination best, const Candidates& candidates, const Limits& limits) {
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

}  // namespace

Elimination plan_elimination(Candidates& candidates, const Limits& limits) {
  constexpr double kEntriesPerComparison = 5;
  Elimination first = quick_plan(candidates, limits);
  if (first.splits > 0 || first.entries > kEntriesPerComparison * entries_to_compare(candidates)) {
    drop_dominated(candidates, part_of(limits.deadline, 0.2));
    first = quick_plan(candidates, limits);
  }
  return cheapest_plan(std::move(first), candidates, limits);
}

}  // namespace joinsum::optimizer::min_sum

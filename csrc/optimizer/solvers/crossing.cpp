#include "optimizer/solvers/crossing.h"

#include <algorithm>
#include <set>

namespace joinsum::optimizer::solvers {
namespace {

/// Of a value with more differing members, joint costs are not listed.
constexpr size_t kMostTogether = 8;
/// A variable with more neighbours is not eliminated.
constexpr size_t kMostNeighbours = 12;

/// Costs by the values of some variables: bit i of an entry's number is that of `variables[i]`, which ascend.
struct Table {
  std::vector<size_t> variables;
  std::vector<double> costs;

  /// The number of the entry that `number`, of a table of `others`, says.
  size_t entry(size_t number, const std::vector<size_t>& others) const {
    size_t out = 0;
    size_t at = 0;
    for (size_t i = 0; i < variables.size(); ++i) {
      while (others[at] != variables[i]) ++at;
      out |= (number >> at & 1) << i;
    }
    return out;
  }
};

/// Finds the best values, 0 or 1, of variables that tables share.
class Elimination {
 public:
  explicit Elimination(size_t variables) : tables_(variables), around_(variables), values_(variables, 0) {}

  void add(Table table) {
    for (const size_t x : table.variables) {
      tables_[x].push_back(all_.size());
      for (const size_t y : table.variables) {
        if (x != y) around_[x].insert(y);
      }
    }
    all_.push_back(std::move(table));
  }

  std::vector<size_t> run() {
    for (size_t x = 0; x < around_.size(); ++x) open_.emplace(around_[x].size(), x);
    while (!open_.empty()) {
      const auto [neighbours, x] = *open_.begin();
      if (neighbours <= kMostNeighbours) {
        eliminate(x);
      } else {
        fix(open_.rbegin()->second);
      }
    }
    for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
      size_t number = 0;
      for (size_t i = 0; i < step->others.size(); ++i) number |= values_[step->others[i]] << i;
      values_[step->variable] = step->best[number];
    }
    return values_;
  }

 private:
  struct Step {
    size_t variable;
    std::vector<size_t> others;
    std::vector<bool> best;  ///< by the values of these
  };

  /// Takes a variable out of the neighbourhoods of others.
  void close(size_t x) {
    open_.erase({around_[x].size(), x});
    for (const size_t y : around_[x]) {
      open_.erase({around_[y].size(), y});
      around_[y].erase(x);
      open_.emplace(around_[y].size(), y);
    }
  }

  void eliminate(size_t x) {
    close(x);
    Step step{x, {around_[x].begin(), around_[x].end()}, {}};
    std::vector<size_t> variables = step.others;
    variables.insert(std::lower_bound(variables.begin(), variables.end(), x), x);
    const size_t at = std::find(variables.begin(), variables.end(), x) - variables.begin();
    std::vector<double> sums(size_t{1} << variables.size(), 0);
    for (const size_t t : tables_[x]) {
      const Table& table = all_[t];
      if (table.variables.empty()) continue;
      for (size_t number = 0; number < sums.size(); ++number)
        sums[number] += table.costs[table.entry(number, variables)];
    }
    Table left{step.others, {}};
    const size_t low = (size_t{1} << at) - 1;
    for (size_t number = 0; number < sums.size() / 2; ++number) {
      const size_t zero = (number & low) | (number & ~low) << 1;
      const size_t one = zero | (low + 1);
      step.best.push_back(sums[one] < sums[zero]);
      left.costs.push_back(std::min(sums[zero], sums[one]));
    }
    forget(x);
    for (const size_t y : step.others) open_.erase({around_[y].size(), y});
    add(std::move(left));
    for (const size_t y : step.others) open_.emplace(around_[y].size(), y);
    steps_.push_back(std::move(step));
  }

  /// Leaves a variable at 0.
  void fix(size_t x) {
    close(x);
    for (const size_t t : std::vector<size_t>(tables_[x])) {
      const Table& table = all_[t];
      if (table.variables.empty()) continue;
      Table left{table.variables, {}};
      std::erase(left.variables, x);
      const size_t at = std::find(table.variables.begin(), table.variables.end(), x) - table.variables.begin();
      for (size_t number = 0; number < table.costs.size(); ++number) {
        if ((number >> at & 1) == 0) left.costs.push_back(table.costs[number]);
      }
      for (const size_t y : left.variables) tables_[y].push_back(all_.size());
      all_.push_back(std::move(left));
    }
    forget(x);
  }

  /// Empties the tables of a variable.
  void forget(size_t x) {
    for (const size_t t : tables_[x]) all_[t] = {};
    tables_[x].clear();
  }

  std::vector<Table> all_;
  std::vector<std::vector<size_t>> tables_;  ///< by variable
  std::vector<std::set<size_t>> around_;
  std::set<std::pair<size_t, size_t>> open_;  ///< variables, by how many are around them
  std::vector<Step> steps_;
  std::vector<size_t> values_;
};

/// The cost of resharding `value` for each subset of `vertices` that runs as in `second`; all others run as in
/// `strategies`.
std::vector<double> joint_costs(const resharding::ReshardingProblem& problem,
                                const resharding::ReshardingProblem::Value& value, const std::vector<size_t>& vertices,
                                const std::vector<size_t>& second, std::vector<size_t>& strategies) {
  std::vector<size_t> before;
  for (const size_t x : vertices) before.push_back(strategies[x]);
  std::vector<double> out;
  for (size_t number = 0; number < size_t{1} << vertices.size(); ++number) {
    for (size_t i = 0; i < vertices.size(); ++i) {
      const size_t x = vertices[i];
      strategies[x] = (number >> i & 1) != 0 ? second[x] : before[i];
    }
    out.push_back(problem.resharding(value, strategies).cost);
  }
  for (size_t i = 0; i < vertices.size(); ++i) strategies[vertices[i]] = before[i];
  return out;
}

/// Members of a value in which the choices differ, each once.
std::vector<size_t> differing(const resharding::ReshardingProblem::Value& value, const std::vector<size_t>& first,
                              const std::vector<size_t>& second) {
  std::vector<size_t> out;
  for (const auto& member : value.members) {
    if (first[member.vertex] != second[member.vertex]) out.push_back(member.vertex);
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

}  // namespace

std::vector<size_t> crossover(const resharding::ReshardingProblem& problem, const std::vector<size_t>& first,
                              const std::vector<size_t>& second) {
  std::vector<size_t> strategies = first;
  std::vector<size_t> vertices;
  std::vector<size_t> variable(first.size());
  for (size_t x = 0; x < first.size(); ++x) {
    variable[x] = vertices.size();
    if (first[x] != second[x]) vertices.push_back(x);
  }
  Elimination elimination(vertices.size());
  for (const size_t x : vertices)
    elimination.add({{variable[x]}, {problem.costs[x][first[x]], problem.costs[x][second[x]]}});
  for (const auto& value : problem.values) {
    const std::vector<size_t> all = differing(value, first, second);
    const auto add = [&](const std::vector<size_t>& some) {
      Table table{{}, joint_costs(problem, value, some, second, strategies)};
      for (const size_t x : some) table.variables.push_back(variable[x]);
      elimination.add(std::move(table));
    };
    if (!all.empty() && all.size() <= kMostTogether) add(all);
    for (size_t i = 0; i < all.size() && all.size() > kMostTogether; ++i) add({all[i]});
  }
  const std::vector<size_t> values = elimination.run();
  for (size_t i = 0; i < vertices.size(); ++i) {
    if (values[i] != 0) strategies[vertices[i]] = second[vertices[i]];
  }
  const std::vector<size_t>& cheaper = problem.cost(second) < problem.cost(first) ? second : first;
  return problem.cost(strategies) < problem.cost(cheaper) ? strategies : cheaper;
}

void Incumbent::consider(std::vector<size_t> strategies, bool improves) {
  if (problem_.cost(strategies) == min_sum::kForbidden) return;
  if (found()) strategies = crossover(problem_, strategies_, strategies);
  if (improves) problem_.improve(strategies, deadline_);
  const double cost = problem_.cost(strategies);
  if (cost < cost_) {
    strategies_ = std::move(strategies);
    cost_ = cost;
  }
}

}  // namespace joinsum::optimizer::solvers

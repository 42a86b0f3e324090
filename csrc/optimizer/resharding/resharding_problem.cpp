#include "optimizer/resharding/resharding_problem.h"

#include <algorithm>
#include <cmath>

namespace joinsum::optimizer::resharding {
namespace {

/// The most rounds of changes. The descent ends long before, unless rounding errors let it cycle.
constexpr int kRounds = 100;
/// Up to so many combinations of layouts, a table of costs lists them all.
constexpr size_t kMostNumbers = 10'000;

/// Changes strategies vertex by vertex; revisits only the vertices around a change.
class Descent {
 public:
  Descent(const ReshardingProblem& problem, std::vector<size_t>& strategies)
      : problem_(problem), strategies_(strategies), around_(strategies.size()), pending_(strategies.size(), true) {
    for (const auto& value : problem.values) {
      for (const auto& member : value.members) {
        auto& around = around_[member.vertex];
        if (around.empty() || around.back() != &value) around.push_back(&value);
      }
    }
  }

  void run(const min_sum::Deadline& deadline) {
    bool gained = true;
    for (int round = 0; gained && round < kRounds; ++round) {
      gained = false;
      for (size_t x = 0; x < strategies_.size() && !min_sum::expired(deadline); ++x) {
        if (!pending_[x]) continue;
        pending_[x] = false;
        gained |= change(x);
      }
    }
  }

 private:
  bool change(size_t vertex) {
    std::vector<double> costs = problem_.costs[vertex];
    const size_t before = strategies_[vertex];
    for (const auto* value : around_[vertex]) add(*value, vertex, costs);
    strategies_[vertex] = before;
    const auto best = std::min_element(costs.begin(), costs.end());
    // A gain within the rounding error does not count.
    if (*best >= costs[before] - 1e-12 * std::abs(costs[before])) return false;
    strategies_[vertex] = best - costs.begin();
    for (const auto* value : around_[vertex]) {
      for (const auto& member : value->members) pending_[member.vertex] = true;
    }
    return true;
  }

  /// Adds the cost of resharding `value` for each strategy of `vertex`, computed once for strategies with equal
  /// layouts.
  void add(const ReshardingProblem::Value& value, size_t vertex, std::vector<double>& costs) {
    const auto is_vertex = [&](const auto& member) { return member.vertex == vertex; };
    const auto first = std::find_if(value.members.begin(), value.members.end(), is_vertex);
    if (first != value.members.begin() && std::none_of(first + 1, value.members.end(), is_vertex))
      return add_as_reader(value, first - value.members.begin(), costs);
    // Numbers the combinations of a strategy's layouts, one membership after the other.
    std::vector<size_t> number(costs.size(), 0);
    size_t count = 1;
    for (const auto& member : value.members) {
      if (member.vertex != vertex) continue;
      const size_t layouts = *std::max_element(member.layouts.begin(), member.layouts.end()) + 1;
      for (size_t strategy = 0; strategy < costs.size(); ++strategy)
        number[strategy] = number[strategy] * layouts + member.layouts[strategy];
      count *= layouts;
      if (count > kMostNumbers) count = renumber(number);
    }
    std::vector<double> known(count, -1);
    for (size_t strategy = 0; strategy < costs.size(); ++strategy) {
      double& cost = known[number[strategy]];
      if (cost < 0) {
        strategies_[vertex] = strategy;
        cost = problem_.resharding(value, strategies_).cost;
      }
      costs[strategy] += cost;
    }
  }

  /// The same for a vertex that reads the value once.
  void add_as_reader(const ReshardingProblem::Value& value, size_t reader, std::vector<double>& costs) {
    const auto& members = value.members;
    std::vector<size_t> others;
    for (size_t i = 1; i < members.size(); ++i) {
      if (i != reader) others.push_back(members[i].layouts[strategies_[members[i].vertex]]);
    }
    const std::vector<size_t>& all = members[reader].layouts;
    std::vector<size_t> layouts = all;
    std::sort(layouts.begin(), layouts.end());
    layouts.erase(std::unique(layouts.begin(), layouts.end()), layouts.end());
    const size_t produced = members[0].layouts[strategies_[members[0].vertex]];
    const std::vector<double> allotted = resharding_cost_beside(*value.routes, produced, std::move(others), layouts);
    std::vector<double> by_layout(layouts.back() + 1);
    for (size_t i = 0; i < layouts.size(); ++i) by_layout[layouts[i]] = allotted[i];
    for (size_t strategy = 0; strategy < costs.size(); ++strategy) costs[strategy] += by_layout[all[strategy]];
  }

  /// Replaces numbers by ranks, and returns the number of different ones.
  static size_t renumber(std::vector<size_t>& numbers) {
    std::vector<size_t> different = numbers;
    std::sort(different.begin(), different.end());
    different.erase(std::unique(different.begin(), different.end()), different.end());
    for (size_t& each : numbers) {
      each = std::lower_bound(different.begin(), different.end(), each) - different.begin();
    }
    return different.size();
  }

  const ReshardingProblem& problem_;
  std::vector<size_t>& strategies_;
  std::vector<std::vector<const ReshardingProblem::Value*>> around_;  ///< each vertex
  std::vector<bool> pending_;
};

size_t produced(const ReshardingProblem::Value& value, const std::vector<size_t>& strategies) {
  return value.members[0].layouts[strategies[value.members[0].vertex]];
}

std::vector<size_t> required(const ReshardingProblem::Value& value, const std::vector<size_t>& strategies) {
  std::vector<size_t> out;
  out.reserve(value.members.size());
  for (size_t i = 1; i < value.members.size(); ++i)
    out.push_back(value.members[i].layouts[strategies[value.members[i].vertex]]);
  return out;
}

}  // namespace

ReshardingCost ReshardingProblem::resharding(const Value& value, const std::vector<size_t>& strategies) const {
  std::vector<size_t> layouts = required(value, strategies);
  return resharding_cost(*value.routes, produced(value, strategies), std::move(layouts));
}

std::vector<double> ReshardingProblem::costs_by_staged(const Value& value,
                                                       const std::vector<size_t>& strategies) const {
  std::vector<size_t> layouts = required(value, strategies);
  return optimizer::resharding::costs_by_staged(*value.routes, produced(value, strategies), layouts);
}

double ReshardingProblem::cost(const std::vector<size_t>& strategies) const {
  double out = 0;
  for (size_t x = 0; x < strategies.size(); ++x) out += costs[x][strategies[x]];
  for (const Value& value : values) out += resharding(value, strategies).cost;
  return out;
}

void ReshardingProblem::improve(std::vector<size_t>& strategies, const min_sum::Deadline& deadline) const {
  Descent(*this, strategies).run(deadline);
}

}  // namespace joinsum::optimizer::resharding

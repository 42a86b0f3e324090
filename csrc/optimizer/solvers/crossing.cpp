#include "optimizer/solvers/crossing.h"

#include <algorithm>

namespace joinsum::optimizer::solvers {
namespace {

using resharding::ReshardingProblem;

/// Of a value with more differing members, joint costs are not listed.
constexpr size_t kMostTogether = 8;
/// Entries of one elimination.
constexpr double kEntries = 1 << 16;

/// Vertices in which two choices differ, and the cost of each subset of them that runs as in the second one: vertex i
/// is in subset number s if bit i of s is set.
struct Joint {
  std::vector<size_t> vertices;
  std::vector<double> costs;

  bool has(size_t subset, size_t vertex) const { return (subset >> vertex & 1) != 0; }

  /// Forbids each subset beside the values of a vertex, 0 or 1, that contradict it.
  std::vector<double> agreement(size_t vertex) const {
    std::vector<double> out;
    for (size_t subset = 0; subset < costs.size(); ++subset) {
      out.push_back(has(subset, vertex) ? min_sum::kForbidden : 0);
      out.push_back(has(subset, vertex) ? 0 : min_sum::kForbidden);
    }
    return out;
  }
};

/// The choice between `first` (0) and `second` (1) in each vertex in which they differ, and a variable for each subset
/// of these that share a value.
class Crossing {
 public:
  Crossing(const ReshardingProblem& problem, const std::vector<size_t>& first, const std::vector<size_t>& second)
      : problem_(problem), first_(first), second_(second), strategies_(first), costs_(first.size()) {
    for (size_t x = 0; x < first.size(); ++x) {
      if (first[x] != second[x]) costs_[x] = {problem.costs[x][first[x]], problem.costs[x][second[x]]};
    }
    for (const auto& value : problem.values) add(value);
  }

  /// Raises PlanError where no choice within the limit is allowed.
  std::vector<size_t> best() const {
    min_sum::Problem choices;
    std::vector<int64_t> variable(first_.size());
    for (size_t x = 0; x < first_.size(); ++x) {
      if (!costs_[x].empty()) variable[x] = choices.add_variable(costs_[x]);
    }
    for (const Joint& joint : joints_) {
      const int64_t subset = choices.add_variable(joint.costs);
      for (size_t i = 0; i < joint.vertices.size(); ++i)
        choices.add_pair(subset, variable[joint.vertices[i]], joint.agreement(i));
    }
    const auto values = min_sum::solve(choices, {kEntries, {}}).values;
    std::vector<size_t> out = first_;
    for (size_t x = 0; x < out.size(); ++x) {
      if (!costs_[x].empty() && values[variable[x]] == 1) out[x] = second_[x];
    }
    return out;
  }

 private:
  void add(const ReshardingProblem::Value& value) {
    std::vector<size_t> vertices;
    for (const auto& member : value.members) {
      if (!costs_[member.vertex].empty()) vertices.push_back(member.vertex);
    }
    std::sort(vertices.begin(), vertices.end());
    vertices.erase(std::unique(vertices.begin(), vertices.end()), vertices.end());
    if (vertices.size() > 1 && vertices.size() <= kMostTogether) {
      joints_.push_back(joint(value, std::move(vertices)));
      return;
    }
    for (const size_t x : vertices) {
      const Joint alone = joint(value, {x});
      for (const size_t i : {0, 1}) costs_[x][i] += alone.costs[i];
    }
  }

  /// The costs of resharding `value` if all other vertices run as in the first choice.
  Joint joint(const ReshardingProblem::Value& value, std::vector<size_t> vertices) {
    Joint out{std::move(vertices), {}};
    for (size_t subset = 0; subset < size_t{1} << out.vertices.size(); ++subset) {
      for (size_t i = 0; i < out.vertices.size(); ++i) {
        const size_t x = out.vertices[i];
        strategies_[x] = out.has(subset, i) ? second_[x] : first_[x];
      }
      out.costs.push_back(problem_.resharding(value, strategies_).cost);
    }
    for (const size_t x : out.vertices) strategies_[x] = first_[x];
    return out;
  }

  const ReshardingProblem& problem_;
  const std::vector<size_t>& first_;
  const std::vector<size_t>& second_;
  std::vector<size_t> strategies_;          ///< the first ones, except while joint costs are computed
  std::vector<std::vector<double>> costs_;  ///< of the vertices in which the choices differ, by choice
  std::vector<Joint> joints_;
};

}  // namespace

std::vector<size_t> crossover(const ReshardingProblem& problem, const std::vector<size_t>& first,
                              const std::vector<size_t>& second) {
  const std::vector<size_t>& cheaper = problem.cost(second) < problem.cost(first) ? second : first;
  try {
    std::vector<size_t> crossed = Crossing(problem, first, second).best();
    return problem.cost(crossed) < problem.cost(cheaper) ? crossed : cheaper;
  } catch (const PlanError&) {
    return cheaper;
  }
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

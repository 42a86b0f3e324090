#pragma once

#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "optimizer/resharding/resharding_problem.h"

namespace joinsum::optimizer::resharding {

/// Random resharding problems whose costs are small integers, so that ties are frequent; some are forbidden.
class RandomReshardings {
 public:
  explicit RandomReshardings(uint64_t seed) : random_(seed) {}

  size_t below(size_t limit) { return random_() % limit; }

  /// Each value is made by one vertex and read by up to `most_readers`, perhaps twice by one.
  ReshardingProblem problem(size_t vertices, size_t values, size_t most_readers) {
    ReshardingProblem out;
    for (size_t x = 0; x < vertices; ++x) {
      out.costs.push_back(prices(1 + below(3), 12));
      out.costs.back()[0] = static_cast<double>(below(12));
    }
    for (size_t i = 0; i < values; ++i) out.values.push_back(value(out, 1 + below(most_readers)));
    return out;
  }

  std::vector<size_t> choice(const ReshardingProblem& problem) {
    std::vector<size_t> out;
    for (const auto& costs : problem.costs) out.push_back(below(costs.size()));
    return out;
  }

 private:
  std::vector<double> prices(size_t count, size_t one_in) {
    std::vector<double> out;
    for (size_t i = 0; i < count; ++i)
      out.push_back(below(one_in) == 0 ? min_sum::kForbidden : static_cast<double>(below(12)));
    return out;
  }

  ReshardingProblem::Value value(const ReshardingProblem& problem, size_t readers) {
    auto routes = std::make_shared<Routes>();
    routes->produced.resize(1 + below(3));
    routes->staged.resize(below(3));
    routes->required.resize(1 + below(3));
    const bool pinned = !routes->staged.empty() && below(3) == 0;
    for (size_t m = 0; m < routes->produced.size(); ++m) {
      for (size_t p = 0; p < routes->staged.size(); ++p) routes->staging_costs.push_back(static_cast<double>(below(9)));
      routes->staging_costs.push_back(pinned ? min_sum::kForbidden : 0);
    }
    for (size_t n = 0; n < routes->required.size(); ++n) {
      for (size_t m = 0; m < routes->produced.size(); ++m)
        routes->fetch_costs.push_back(pinned ? min_sum::kForbidden : static_cast<double>(below(9)));
      for (size_t p = 0; p < routes->staged.size(); ++p) routes->fetch_costs.push_back(static_cast<double>(below(9)));
      routes->fetch_costs.push_back(min_sum::kForbidden);
    }
    for (size_t source = 0; source < routes->sources(); ++source) {
      for (size_t n = 0; n < routes->required.size(); ++n)
        routes->fetch_costs_by_source.push_back(routes->fetch_costs[n * routes->sources() + source]);
    }
    ReshardingProblem::Value out;
    const size_t producer = below(problem.costs.size());
    out.members.push_back(member(problem, producer, routes->produced.size()));
    for (size_t i = 0; i < readers; ++i)
      out.members.push_back(member(problem, below(problem.costs.size()), routes->required.size()));
    out.routes = std::move(routes);
    return out;
  }

  ReshardingProblem::Member member(const ReshardingProblem& problem, size_t vertex, size_t layouts) {
    ReshardingProblem::Member out{vertex, {}};
    for (size_t strategy = 0; strategy < problem.costs[vertex].size(); ++strategy)
      out.layouts.push_back(below(layouts));
    return out;
  }

  std::mt19937_64 random_;
};

/// The cost of a choice, by the definition: each value takes its best staging layout, and each layout that a reader
/// requires is fetched once, from the produced or from the staging layout.
inline double enumerated_cost(const ReshardingProblem& problem, const std::vector<size_t>& strategies) {
  double out = 0;
  for (size_t x = 0; x < strategies.size(); ++x) out += problem.costs[x][strategies[x]];
  for (const auto& value : problem.values) {
    const Routes& routes = *value.routes;
    const size_t produced = value.members[0].layouts[strategies[value.members[0].vertex]];
    double least = min_sum::kForbidden;
    for (size_t staged = 0; staged < routes.columns(); ++staged) {
      double sum = routes.staging_costs[produced * routes.columns() + staged];
      for (size_t n = 0; n < routes.required.size(); ++n) {
        bool required = false;
        for (size_t i = 1; i < value.members.size(); ++i)
          required = required || value.members[i].layouts[strategies[value.members[i].vertex]] == n;
        const double* from = routes.fetch_costs.data() + n * routes.sources();
        if (required) sum += std::min(from[produced], from[routes.produced.size() + staged]);
      }
      least = std::min(least, sum);
    }
    out += least;
  }
  return out;
}

/// The least cost of all choices that `allowed` lets each vertex have.
inline double least_of_all(const ReshardingProblem& problem, const auto& allowed) {
  std::vector<size_t> strategies(problem.costs.size(), 0);
  double least = min_sum::kForbidden;
  while (true) {
    bool may = true;
    for (size_t x = 0; x < strategies.size(); ++x) may = may && allowed(x, strategies[x]);
    if (may) least = std::min(least, enumerated_cost(problem, strategies));
    size_t x = 0;
    while (x < strategies.size() && ++strategies[x] == problem.costs[x].size()) strategies[x++] = 0;
    if (x == strategies.size()) return least;
  }
}

}  // namespace joinsum::optimizer::resharding

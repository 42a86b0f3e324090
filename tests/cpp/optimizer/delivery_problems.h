#pragma once

#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "optimizer/placement/delivery_problem.h"

namespace joinsum::optimizer {

/// Random delivery problems whose costs are small integers, so that ties are frequent; some are forbidden.
class RandomDeliveries {
 public:
  explicit RandomDeliveries(uint64_t seed) : random_(seed) {}

  size_t below(size_t limit) { return random_() % limit; }

  /// Each value is made by one vertex and read by up to `most_readers`, perhaps twice by one.
  DeliveryProblem problem(size_t vertices, size_t values, size_t most_readers) {
    DeliveryProblem out;
    for (size_t x = 0; x < vertices; ++x) {
      out.costs.push_back(prices(1 + below(3), 12));
      out.costs.back()[0] = static_cast<double>(below(12));
    }
    for (size_t i = 0; i < values; ++i) out.values.push_back(value(out, 1 + below(most_readers)));
    return out;
  }

  std::vector<size_t> choice(const DeliveryProblem& problem) {
    std::vector<size_t> out;
    for (const auto& costs : problem.costs) out.push_back(below(costs.size()));
    return out;
  }

 private:
  std::vector<double> prices(size_t count, size_t one_in) {
    std::vector<double> out;
    for (size_t i = 0; i < count; ++i) out.push_back(below(one_in) == 0 ? kForbidden : static_cast<double>(below(12)));
    return out;
  }

  DeliveryProblem::Value value(const DeliveryProblem& problem, size_t readers) {
    auto routes = std::make_shared<Routes>();
    routes->made.resize(1 + below(3));
    routes->put.resize(below(3));
    routes->needed.resize(1 + below(3));
    const bool pinned = !routes->put.empty() && below(3) == 0;
    for (size_t m = 0; m < routes->made.size(); ++m) {
      for (size_t p = 0; p < routes->put.size(); ++p) routes->putting.push_back(static_cast<double>(below(9)));
      routes->putting.push_back(pinned ? kForbidden : 0);
    }
    for (size_t n = 0; n < routes->needed.size(); ++n) {
      for (size_t m = 0; m < routes->made.size(); ++m)
        routes->taking.push_back(pinned ? kForbidden : static_cast<double>(below(9)));
      for (size_t p = 0; p < routes->put.size(); ++p) routes->taking.push_back(static_cast<double>(below(9)));
      routes->taking.push_back(kForbidden);
    }
    for (size_t source = 0; source < routes->sources(); ++source) {
      for (size_t n = 0; n < routes->needed.size(); ++n)
        routes->taking_from.push_back(routes->taking[n * routes->sources() + source]);
    }
    DeliveryProblem::Value out;
    const size_t maker = below(problem.costs.size());
    out.members.push_back(member(problem, maker, routes->made.size()));
    for (size_t i = 0; i < readers; ++i)
      out.members.push_back(member(problem, below(problem.costs.size()), routes->needed.size()));
    out.routes = std::move(routes);
    return out;
  }

  DeliveryProblem::Member member(const DeliveryProblem& problem, size_t vertex, size_t places) {
    DeliveryProblem::Member out{vertex, {}};
    for (size_t mode = 0; mode < problem.costs[vertex].size(); ++mode) out.places.push_back(below(places));
    return out;
  }

  std::mt19937_64 random_;
};

/// The cost of a choice, by the definition: each value is put in the best place, and each place that a reader needs is
/// paid once, from where the value is made or from where it is put.
inline double enumerated_cost(const DeliveryProblem& problem, const std::vector<size_t>& modes) {
  double out = 0;
  for (size_t x = 0; x < modes.size(); ++x) out += problem.costs[x][modes[x]];
  for (const auto& value : problem.values) {
    const Routes& routes = *value.routes;
    const size_t made = value.members[0].places[modes[value.members[0].vertex]];
    double least = kForbidden;
    for (size_t put = 0; put < routes.columns(); ++put) {
      double sum = routes.putting[made * routes.columns() + put];
      for (size_t n = 0; n < routes.needed.size(); ++n) {
        bool needed = false;
        for (size_t i = 1; i < value.members.size(); ++i)
          needed = needed || value.members[i].places[modes[value.members[i].vertex]] == n;
        const double* from = routes.taking.data() + n * routes.sources();
        if (needed) sum += std::min(from[made], from[routes.made.size() + put]);
      }
      least = std::min(least, sum);
    }
    out += least;
  }
  return out;
}

/// The least cost of all choices that `allowed` lets each vertex have.
inline double least_of_all(const DeliveryProblem& problem, const auto& allowed) {
  std::vector<size_t> modes(problem.costs.size(), 0);
  double least = kForbidden;
  while (true) {
    bool may = true;
    for (size_t x = 0; x < modes.size(); ++x) may = may && allowed(x, modes[x]);
    if (may) least = std::min(least, enumerated_cost(problem, modes));
    size_t x = 0;
    while (x < modes.size() && ++modes[x] == problem.costs[x].size()) modes[x++] = 0;
    if (x == modes.size()) return least;
  }
}

}  // namespace joinsum::optimizer

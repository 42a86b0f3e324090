#include "optimizer/min_sum/improvement.h"

#include <cmath>
#include <tuple>

namespace joinsum::optimizer::min_sum {
namespace {

/// The most sweeps of the local improvement. It ends long before, unless rounding errors let it cycle.
constexpr int64_t kSweeps = 1'000;

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

  /// A gain within the rounding error does not count.
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

}  // namespace

void improve(const Candidates& candidates, Values& choices, const Deadline& deadline) {
  Improvement(candidates, choices).run(deadline);
}

}  // namespace joinsum::optimizer::min_sum

#include "sparse/logical/branch_and_bound.h"

#include <bit>
#include <cmath>
#include <map>

namespace joinsum::sparse::logical {
namespace {

/// What is eliminated: for each index of the query, the leaves along whose paths it is.
using Eliminated = std::map<int64_t, uint64_t>;

struct State {
  TermPtr term;
  double cost = 0;
  std::vector<std::pair<int64_t, int64_t>> steps;
};

int64_t size_of(const Eliminated& eliminated) {
  int64_t size = 0;
  for (const auto& [index, leaves] : eliminated) size += std::popcount(leaves);
  return size;
}

}  // namespace

Best branch_and_bound(const Eliminator& eliminator, Terms& terms, const TermPtr& start, double bound,
                      int64_t most_states) {
  // By the number of what is eliminated, which every step raises.
  std::map<int64_t, std::map<Eliminated, State>> table;
  table[0][{}] = {start, 0, {}};
  const double limit = bound + 1e-12 * std::abs(bound);
  Best best;
  int64_t states = 1;
  while (!table.empty()) {
    auto layer = table.extract(table.begin());
    for (auto& [eliminated, state] : layer.mapped()) {
      if (!state.term->aggregated) {
        if (best.found ? state.cost < best.cost : state.cost <= limit) {
          best = {true, false, state.cost, std::move(state.steps)};
        }
        continue;
      }
      for (const Elimination& step : eliminator.candidates(state.term)) {
        const double cost = state.cost + step.cost;
        if (cost > limit || (best.found && cost >= best.cost)) continue;
        Eliminated next = eliminated;
        for (const auto& [index, leaves] : step.covered()) next[terms.space().roots[index]] |= leaves;
        auto& known = table[size_of(next)];
        const auto found = known.find(next);
        if (found != known.end() && found->second.cost <= cost) continue;
        std::vector<int64_t> gone;
        State reached = {eliminator.without_idle(eliminator.apply(state.term, step, "_"), gone), cost, state.steps};
        reached.steps.emplace_back(step.index, step.path);
        states += found == known.end() ? 1 : 0;
        if (states > most_states) return {false, true};
        known[std::move(next)] = std::move(reached);
      }
    }
  }
  return best;
}

}  // namespace joinsum::sparse::logical

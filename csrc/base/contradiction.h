#pragma once

#include <algorithm>
#include <vector>

namespace joinsum {

/// The smallest set of demands that is not possible; empty where all of them together are. Of sets of one size the
/// first, in the order of the demands.
template <class Demand>
std::vector<Demand> smallest_contradiction(const std::vector<Demand>& demands, const auto& possible) {
  if (possible(demands)) return {};
  for (size_t size = 1; size <= demands.size(); ++size) {
    std::vector<bool> chosen(demands.size(), false);
    std::fill_n(chosen.begin(), size, true);
    do {
      std::vector<Demand> set;
      for (size_t i = 0; i < demands.size(); ++i) {
        if (chosen[i]) set.push_back(demands[i]);
      }
      if (!possible(set)) return set;
    } while (std::prev_permutation(chosen.begin(), chosen.end()));
  }
  return {};
}

}  // namespace joinsum

#include "base/contradiction.h"

#include <bit>
#include <cstdint>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

namespace joinsum {
namespace {

TEST(SmallestContradiction, IsTheSmallestOfAllImpossibleSubsets) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 200; ++round) {
    const size_t count = 1 + random() % 7;
    std::vector<int> demands(count);
    std::iota(demands.begin(), demands.end(), 0);
    // A set is impossible if it has all members of one of these.
    std::vector<uint64_t> cores(random() % 3);
    for (uint64_t& core : cores) core = 1 + random() % ((uint64_t{1} << count) - 1);
    const auto possible = [&](const std::vector<int>& some) {
      uint64_t set = 0;
      for (const int each : some) set |= uint64_t{1} << each;
      return std::none_of(cores.begin(), cores.end(), [&](uint64_t core) { return (set & core) == core; });
    };
    int least = 0;
    for (const uint64_t core : cores) least = least == 0 ? std::popcount(core) : std::min(least, std::popcount(core));
    const auto found = smallest_contradiction(demands, possible);
    EXPECT_EQ(static_cast<int>(found.size()), least);
    EXPECT_TRUE(found.empty() || !possible(found));
  }
}

}  // namespace
}  // namespace joinsum

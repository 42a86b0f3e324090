#include "base/disjoint_sets.h"

#include <random>

#include <gtest/gtest.h>

namespace joinsum {
namespace {

TEST(DisjointSets, AgreeWithRelabelling) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 50; ++round) {
    const auto count = static_cast<int64_t>(1 + random() % 20);
    DisjointSets sets(count);
    std::vector<int64_t> least(count);
    for (int64_t i = 0; i < count; ++i) least[i] = i;
    for (int step = 0; step < 15; ++step) {
      const auto a = static_cast<int64_t>(random() % count);
      const auto b = static_cast<int64_t>(random() % count);
      const int64_t both = std::min(least[a], least[b]);
      const int64_t from_a = least[a];
      const int64_t from_b = least[b];
      for (int64_t& each : least) each = each == from_a || each == from_b ? both : each;
      sets.unite(a, b);
      for (int64_t i = 0; i < count; ++i) ASSERT_EQ(sets.find(i), least[i]);
    }
  }
}

}  // namespace
}  // namespace joinsum

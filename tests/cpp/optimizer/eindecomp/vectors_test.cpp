#include "optimizer/eindecomp/vectors.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace joinsum::optimizer::eindecomp {
namespace {

/// Every vector whose parts divide their extents and are powers of two up to 64.
std::vector<Dims> all_vectors(const Dims& extents) {
  std::vector<Dims> out{{}};
  for (const int64_t extent : extents) {
    std::vector<Dims> longer;
    for (const Dims& vector : out) {
      for (int64_t parts = 1; parts <= 64 && extent % parts == 0; parts *= 2) {
        longer.push_back(vector);
        longer.back().push_back(parts);
      }
    }
    out = std::move(longer);
  }
  return out;
}

int64_t calls(const Dims& vector) { return checked_product("test", vector); }

TEST(Vectors, AreThoseOfAllThatReachTheCalls) {
  for (const Dims& extents : std::vector<Dims>{{8, 8, 8}, {12, 5, 16}, {7, 3}, {2, 2, 2, 2, 2}, {1}, {64, 6}}) {
    for (const int64_t wanted : {1, 2, 5, 8, 64}) {
      const auto all = all_vectors(extents);
      int64_t most = 0;
      for (const Dims& vector : all) {
        if (calls(vector) <= power_of_two_calls(wanted)) most = std::max(most, calls(vector));
      }
      EXPECT_EQ(reachable_calls(extents, wanted), most);
      std::vector<Dims> expected;
      for (const Dims& vector : all) {
        if (calls(vector) == most) expected.push_back(vector);
      }
      std::vector<Dims> found = viable_vectors(extents, wanted);
      std::sort(expected.begin(), expected.end());
      std::sort(found.begin(), found.end());
      EXPECT_EQ(found, expected);
    }
  }
}

TEST(Vectors, AnEmptyAxisIsOnePart) {
  EXPECT_EQ(greatest_parts(0), 1);
  EXPECT_EQ(viable_vectors({0, 4}, 4), (std::vector<Dims>{{1, 4}}));
}

}  // namespace
}  // namespace joinsum::optimizer::eindecomp

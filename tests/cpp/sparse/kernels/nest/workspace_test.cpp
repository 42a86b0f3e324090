#include "sparse/kernels/nest/workspace.h"

#include <map>
#include <random>

#include <gtest/gtest.h>

namespace joinsum::sparse::kernels::nest {
namespace {

struct Sum {
  static int64_t reduced(int64_t a, int64_t b) { return a + b; }
};

/// Values and, where they are counted, how many were added.
using Elements = std::map<int64_t, std::pair<int64_t, int64_t>>;

Elements drained(Workspace<int64_t>& workspace) {
  Elements out;
  int64_t before = -1;
  workspace.drain([&](int64_t position, int64_t value, int64_t count) {
    EXPECT_LT(before, position);
    before = position;
    out[position] = {value, count};
  });
  return out;
}

/// How a workspace finds what was touched depends on how much that is: from one position of many to all of few.
TEST(Workspace, YieldsWhatWasAddedInOrderHoweverFull) {
  std::mt19937_64 random(0);
  for (const int64_t size : {1, 63, 64, 65, 4096, 5000, 300000}) {
    for (const int way : {0, 1, 2, 3}) {
      const bool is_array = way % 2 == 0, counted = way >= 2;
      Workspace<int64_t> workspace(size, 0, is_array, counted);
      for (const int64_t added : {0, 1, 3, 20, 100, 2000, 20000, 3, 0, 100}) {
        Elements wanted;
        for (int64_t i = 0; i < added; ++i) {
          const int64_t position = std::uniform_int_distribution<int64_t>(0, size - 1)(random);
          workspace.add(Sum(), position, i + 1, 1);
          const auto [value, count] = wanted[position];
          wanted[position] = {value + i + 1, counted ? count + 1 : 1};
        }
        EXPECT_EQ(drained(workspace), wanted) << size << " " << way << " " << added;
      }
    }
  }
}

}  // namespace
}  // namespace joinsum::sparse::kernels::nest

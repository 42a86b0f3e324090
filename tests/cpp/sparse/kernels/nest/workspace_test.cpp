#include "sparse/kernels/nest/workspace.h"

#include <map>
#include <random>

#include <gtest/gtest.h>

namespace joinsum::sparse::kernels::nest {
namespace {

struct Sum {
  static int64_t reduced(int64_t a, int64_t b) { return a + b; }
};

std::map<int64_t, int64_t> drained(Workspace<int64_t>& workspace) {
  std::map<int64_t, int64_t> out;
  int64_t before = -1;
  workspace.drain([&](int64_t position, int64_t value, int64_t count) {
    EXPECT_LT(before, position);
    EXPECT_GT(count, 0);
    before = position;
    out[position] = value;
  });
  return out;
}

/// How a workspace finds what was touched depends on how much that is: from one position of many to all of few.
TEST(Workspace, YieldsWhatWasAddedInOrderHoweverFull) {
  std::mt19937_64 random(0);
  for (const int64_t size : {1, 63, 64, 65, 4096, 5000, 300000}) {
    for (const bool is_array : {true, false}) {
      Workspace<int64_t> workspace(size, 0, is_array, false);
      for (const int64_t added : {0, 1, 3, 20, 100, 2000, 20000, 3, 0, 100}) {
        std::map<int64_t, int64_t> wanted;
        for (int64_t i = 0; i < added; ++i) {
          const int64_t position = std::uniform_int_distribution<int64_t>(0, size - 1)(random);
          workspace.add(Sum(), position, i + 1, 1);
          wanted[position] += i + 1;
        }
        EXPECT_EQ(drained(workspace), wanted) << size << " " << is_array << " " << added;
      }
    }
  }
}

}  // namespace
}  // namespace joinsum::sparse::kernels::nest

#include "optimizer/min_sum/rows.h"

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace joinsum::optimizer::min_sum {
namespace {

using Row = std::vector<double>;
constexpr double kInfinite = std::numeric_limits<double>::infinity();

/// Small integers, so that sums are exact, and infinities.
class Draw {
 public:
  Row row(int64_t count) {
    Row out;
    for (int64_t i = 0; i < count; ++i)
      out.push_back(random_() % 9 == 0 ? kInfinite : static_cast<double>(random_() % 100));
    return out;
  }

 private:
  std::mt19937_64 random_{11};
};

/// Lengths around those of vector registers.
constexpr int64_t kLengths[] = {1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 40};

TEST(Rows, AgreeWithEntryByEntry) {
  Draw draw;
  for (const int64_t count : kLengths) {
    const Row left = draw.row(count), right = draw.row(count);
    Row sum = left, limited = left, lowered = left, lowered_by_sum = left;
    add_row(sum.data(), right.data(), count);
    add_limited_row(limited.data(), right.data(), 40, count);
    lower_row(lowered.data(), right.data(), 3, count);
    lower_rows(lowered_by_sum.data(), left.data(), right.data(), -50, count);
    double least = kInfinite, least_limited = kInfinite;
    for (int64_t i = 0; i < count; ++i) {
      EXPECT_EQ(sum[i], left[i] + right[i]);
      EXPECT_EQ(limited[i], left[i] + std::min(right[i], 40.0));
      EXPECT_EQ(lowered[i], std::min(left[i], 3 + right[i]));
      EXPECT_EQ(lowered_by_sum[i], std::min(left[i], left[i] + right[i] - 50));
      least = std::min(least, left[i] + right[i]);
      least_limited = std::min(least_limited, left[i] + std::min(right[i], 40.0));
    }
    EXPECT_EQ(least_of_rows(left.data(), right.data(), count), least);
    EXPECT_EQ(least_of_limited_rows(left.data(), right.data(), 40, count), least_limited);
  }
}

TEST(Rows, AProductIsTheLeastSumOverTheInnerIndex) {
  Draw draw;
  for (const int64_t columns : kLengths) {
    const int64_t rows = 3, inner = 5;
    const Row left = draw.row(rows * inner), right = draw.row(inner * columns);
    Row expected = draw.row(rows * columns);
    Row found = expected;
    lower_product(found.data(), left.data(), right.data(), rows, inner, columns);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t k = 0; k < inner; ++k) {
        for (int64_t c = 0; c < columns; ++c) {
          double& least = expected[r * columns + c];
          least = std::min(least, left[r * inner + k] + right[k * columns + c]);
        }
      }
    }
    EXPECT_EQ(found, expected);
  }
}

/// The least cost of all partitions of `set` into groups, recursively: the group of its lowest element first.
double least_partition(int64_t set, const std::vector<double>& group_costs) {
  if (set == 0) return 0;
  const int64_t lowest = set & -set;
  double least = kInfinite;
  for (int64_t group = set; group > 0; group = (group - 1) & set) {
    if ((group & lowest) != 0) least = std::min(least, group_costs[group] + least_partition(set ^ group, group_costs));
  }
  return least;
}

TEST(Rows, GroupsAreTheLeastOfAllPartitions) {
  Draw draw;
  const int64_t sets = 16;
  for (const int64_t columns : kLengths) {
    const int64_t stride = columns + 3;
    const Row limited = draw.row(sets * stride), most = draw.row(sets * stride);
    Row best(sets * columns, 0);
    lower_groups(best.data(), limited.data(), most.data(), sets, columns, stride);
    for (int64_t column = 0; column < columns; ++column) {
      std::vector<double> costs;
      for (int64_t set = 0; set < sets; ++set)
        costs.push_back(std::min(limited[set * stride + column], most[set * stride]));
      for (int64_t set = 0; set < sets; ++set)
        EXPECT_EQ(best[set * columns + column], least_partition(set, costs)) << set << ", " << column;
    }
  }
}

}  // namespace
}  // namespace joinsum::optimizer::min_sum

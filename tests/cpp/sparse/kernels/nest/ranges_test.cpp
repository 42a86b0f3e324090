#include "sparse/kernels/nest/ranges.h"

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "sparse/tensor/random_tensors.h"

namespace joinsum::sparse::kernels::nest {
namespace {

using enum LevelFormat;
using Cuts = std::vector<int64_t>;

std::vector<LevelView> views_of(const Tensor& tensor) {
  std::vector<LevelView> out;
  for (const Level& level : tensor.levels) out.emplace_back(level, false);
  return out;
}

/// A matrix of which row r has `counts[r]` elements, at columns of its own.
Tensor matrix(const std::vector<int64_t>& counts, int64_t columns, const std::vector<LevelFormat>& formats) {
  std::vector<std::pair<Dims, double>> elements;
  for (int64_t row = 0; row < std::ssize(counts); ++row) {
    for (int64_t e = 0; e < counts[row]; ++e) elements.push_back({{row, (7 * row + e) % columns}, 1.0});
  }
  const Dims shape{std::ssize(counts), columns};
  return tensor::from_coordinates(tensor::coordinates_of(shape, DType::kFloat64, elements), {0, 1}, formats, 0);
}

/// A few rows have most of the elements, the first ones the most; some have none.
std::vector<int64_t> skewed_counts(int64_t rows, int64_t columns) {
  std::vector<int64_t> out;
  for (int64_t row = 0; row < rows; ++row) out.push_back(row % 5 == 4 ? 0 : std::min(columns, 3000 / (1 + row)));
  return out;
}

int64_t most_work(const EntriesBelow& below, const Cuts& cuts) {
  int64_t most = 0;
  for (size_t i = 1; i < cuts.size(); ++i) most = std::max(most, below.before(cuts[i]) - below.before(cuts[i - 1]));
  return most;
}

TEST(EntriesBelow, CountsCoordinatesAndTheEntriesBelowThemOfAllOperands) {
  constexpr int64_t kColumns = 11;
  const std::vector<int64_t> first{3, 0, 11, 1, 0, 2}, second{0, 5, 0, 0, 4, 1};
  for (const LevelFormat rows : {kDense, kSortedList, kHash}) {
    for (const LevelFormat columns : {kSortedList, kHash}) {
      const Tensor a = matrix(first, kColumns, {rows, columns}), b = matrix(second, kColumns, {kDense, kSortedList});
      EntriesBelow below;
      below.add(views_of(a));
      below.add(views_of(b));
      int64_t wanted = 0;
      for (int64_t row = 0; row < std::ssize(first); ++row) {
        EXPECT_EQ(below.before(row), wanted) << row;
        wanted += 1 + first[row] + second[row];
      }
      EXPECT_EQ(below.before(std::ssize(first)), wanted);
    }
  }
}

TEST(EntriesBelow, CountsAllPlacesOfLevelsThatHaveThem) {
  const Tensor dense = matrix({1, 1, 1}, 8, {kDense, kDense}), map = matrix({1, 1, 1}, 8, {kDense, kBytemap});
  for (const Tensor* each : {&dense, &map}) {
    EntriesBelow below;
    below.add(views_of(*each));
    for (int64_t row = 0; row <= 3; ++row) EXPECT_EQ(below.before(row), row * (1 + 8));
  }
}

TEST(EntriesBelow, RangesOfSkewedRowsHaveAboutTheSameEntries) {
  constexpr int64_t kRows = 2000, kColumns = 4000;
  const std::vector<int64_t> counts = skewed_counts(kRows, kColumns);
  for (const LevelFormat rows : {kDense, kSortedList, kHash}) {
    const Tensor a = matrix(counts, kColumns, {rows, kSortedList});
    EntriesBelow below;
    below.add(views_of(a));
    const int64_t all = below.before(kRows);
    for (const int64_t count : {1, 2, 3, 8, 33, 500, 5000}) {
      const Cuts cuts = below.cut(kRows, count);
      ASSERT_LE(std::ssize(cuts), count + 1);
      EXPECT_EQ(cuts.front(), 0);
      EXPECT_EQ(cuts.back(), kRows);
      for (size_t i = 1; i < cuts.size(); ++i) {
        ASSERT_LT(cuts[i - 1], cuts[i]);
        // Rows are not divided: without its last row, a range has at most its share.
        EXPECT_LE(below.before(cuts[i] - 1) - below.before(cuts[i - 1]), all / count + 1) << count;
      }
    }
    // Ranges of as many rows are far from it.
    const Cuts even{0, kRows / 4, kRows / 2, 3 * kRows / 4, kRows};
    EXPECT_GT(most_work(below, even), 2 * most_work(below, below.cut(kRows, 4)));
  }
}

TEST(EntriesBelow, WithoutOperandsRangesHaveAsManyCoordinates) {
  const EntriesBelow none;
  EXPECT_EQ(none.cut(10, 3), (Cuts{0, 3, 6, 10}));
  EXPECT_EQ(none.cut(5, 1), (Cuts{0, 5}));
  EXPECT_EQ(none.cut(2, 5), (Cuts{0, 1, 2}));
  EXPECT_EQ(none.cut(0, 4), (Cuts{0}));
}

TEST(RunTasks, EachTaskRunsOnceAndTheFirstThatFailedIsRaised) {
  for (const int threads : {1, 2, 3, 8}) {
    std::vector<std::atomic<int>> runs(100);
    std::atomic<bool> known = true;
    std::string raised;
    try {
      run_tasks(threads, std::ssize(runs), [&](int worker, int64_t task) {
        ++runs[task];
        if (worker < 0 || worker >= threads) known = false;
        if (task == 30 || task == 70) throw std::runtime_error(std::to_string(task));
      });
    } catch (const std::runtime_error& error) {
      raised = error.what();
    }
    EXPECT_EQ(raised, "30");
    EXPECT_TRUE(known);
    for (const std::atomic<int>& each : runs) EXPECT_EQ(each.load(), 1);
  }
}

}  // namespace
}  // namespace joinsum::sparse::kernels::nest

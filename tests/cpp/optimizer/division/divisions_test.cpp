#include "optimizer/division/divisions.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace joinsum::optimizer::division {
namespace {

const ia::Grid kSquare{{2, 2}};

TEST(Divisions, OnAFewAxesAreAllAssignmentsOfDimensions) {
  const auto all = divisions(kSquare, {{4, 0}, {4, 1}}, false);
  EXPECT_EQ(all.size(), 9u);
  for (const int64_t a : {int64_t{0}, int64_t{1}, kNothing}) {
    for (const int64_t b : {int64_t{0}, int64_t{1}, kNothing}) {
      EXPECT_NE(std::find(all.begin(), all.end(), Dims({a, b})), all.end()) << a << ", " << b;
    }
  }
}

TEST(Divisions, OnManyAxesOfOneSizeTakeDimensionsByRank) {
  const ia::Grid grid{{2, 2, 2, 2, 2}};
  const auto all = divisions(grid, {{32, 1}, {32, 0}}, false);
  EXPECT_EQ(all.size(), 21u);  // multisets of 5 out of 3
  const auto rank = [](int64_t dim) { return dim == kNothing ? 2 : 1 - dim; };
  for (const Dims& division : all) {
    EXPECT_TRUE(
        std::is_sorted(division.begin(), division.end(), [&](int64_t a, int64_t b) { return rank(a) < rank(b); }));
  }
}

TEST(Divisions, ThatDivideAllLeaveNoAxisIdleThatCouldDivide) {
  const std::vector<Divisible> dims{{4, 0}, {1, 1}};
  const auto all = divisions(kSquare, dims, true);
  EXPECT_EQ(all, (std::vector<Dims>{{0, 0}}));
  for (const Dims& division : divisions(kSquare, dims, false)) {
    EXPECT_EQ(leaves_undivided(kSquare, {4, 1}, division), division != Dims({0, 0}));
  }
}

TEST(Divisions, ADimensionWithFewerKeysThanPartsIsDividedByItsFirstAxes) {
  EXPECT_FALSE(leaves_undivided(kSquare, {2, 1}, {0, 0}));
  EXPECT_TRUE(leaves_undivided(kSquare, {2, 2}, {0, 0}));
}

TEST(Divisions, InBundlesGiveAllAxesOfABundleOneDimension) {
  const ia::Grid grid{{2, 2, 2, 2, 2, 2}};
  const Dims bundles = bundles_of(grid);
  EXPECT_EQ(bundles, (Dims{0, 0, 1, 1, 2, 2}));
  for (const Dims& division : divisions_in_bundles(grid, {{64, 0}}, false)) {
    for (size_t axis = 1; axis < division.size(); ++axis) {
      EXPECT_TRUE(bundles[axis] != bundles[axis - 1] || division[axis] == division[axis - 1]);
    }
  }
}

TEST(Divisions, AndPlacementsSayTheSame) {
  for (const Dims& division : divisions(kSquare, {{4, 0}, {4, 1}}, false)) {
    EXPECT_EQ(split_of(placement_of(division, {4, 4})), division);
  }
}

TEST(Divisions, OfManyDimensionsAreThoseOfTheWidest) {
  std::vector<Divisible> dims(40, {2, 0});
  dims[7].extent = 64;
  dims[31].extent = 16;
  const std::vector<Dims> found = divisions({{2, 2, 2, 2}}, dims, true);
  EXPECT_GT(found.size(), 1'000U);
  EXPECT_LE(found.size(), 10'000U);
  for (const int64_t wide : {7, 31}) {
    EXPECT_NE(std::ranges::find(found, Dims(4, wide)), found.end());
  }
  EXPECT_EQ(divisions({{2, 2, 2, 2}}, {{2, 0}, {2, 1}, {2, 2}}, false).size(), 35U);
}

TEST(DivisionConstraint, CountsPartsThatHaveKeys) {
  DivisionConstraint four;
  four.parts = {{0, 4}};
  EXPECT_TRUE(four.met_by(kSquare, {8, 8}, {0, 0}));
  EXPECT_FALSE(four.met_by(kSquare, {8, 8}, {0, 1}));
  DivisionConstraint three;
  three.parts = {{0, 3}};
  EXPECT_TRUE(three.met_by(kSquare, {3, 8}, {0, 0}));
  DivisionConstraint axes;
  axes.axes = Dims{1, kNothing};
  EXPECT_TRUE(axes.met_by(kSquare, {8, 8}, {1, kNothing}));
  EXPECT_FALSE(axes.met_by(kSquare, {8, 8}, {kNothing, 1}));
}

}  // namespace
}  // namespace joinsum::optimizer::division

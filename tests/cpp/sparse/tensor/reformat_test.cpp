#include <limits>

#include <gtest/gtest.h>

#include "random_tensors.h"

namespace joinsum::sparse::tensor {

using operators::Operator;
namespace {

using enum LevelFormat;

Elements without(Elements elements, double fill) {
  std::erase_if(elements, [=](const auto& element) {
    return element.second == fill || (std::isnan(element.second) && std::isnan(fill));
  });
  return elements;
}

TEST(SparseTensorReformat, EveryPairOfNestingsHoldsTheSameElements) {
  RandomTensors random(5);
  for (int64_t rank = 0; rank <= 3; ++rank) {
    for (const std::vector<LevelFormat>& from : nestings(rank)) {
      for (const std::vector<LevelFormat>& to : nestings(rank)) {
        const DType dtype = element_types()[random.below(6)];
        const Dims shape = random.shape(rank, 4);
        const double fill = static_cast<double>(random.below(2));
        const Coordinates given = coordinates_of(shape, dtype, random.elements(shape, random.below(8), true));
        const Tensor tensor = from_coordinates(given, random.order(rank), from, fill, Operator::kMax);
        const Tensor other = reformatted(tensor, random.order(rank), to);
        check(other);
        EXPECT_EQ(elements_of(to_coordinates(tensor, true)), without(elements_of(to_coordinates(tensor)), fill));
        EXPECT_EQ(elements_of(to_coordinates(other, true)), elements_of(to_coordinates(tensor, true)));
      }
    }
  }
}

TEST(SparseTensorReformat, ElementsAtTheFillStayUnlessADenseLevelHoldsThem) {
  const Coordinates given{.shape = {2, 2}, .axes = {{0, 1}, {0, 1}}, .values = values_of(DType::kFloat64, {0, 3})};
  for (const LevelFormat last : {kBytemap, kSortedList, kHash}) {
    const Tensor tensor = from_coordinates(given, {0, 1}, {kDense, last}, 0);
    EXPECT_EQ(reformatted(tensor, {1, 0}, {kSortedList, kSortedList}).stored(), 2);
  }
  const Tensor dense = from_coordinates(given, {0, 1}, {kDense, kDense}, 0);
  EXPECT_EQ(dense.stored(), 4);
  EXPECT_EQ(reformatted(dense, {1, 0}, {kSortedList, kSortedList}).stored(), 1);
}

TEST(SparseTensorReformat, ArraysThatStayAreShared) {
  const Coordinates given{.shape = {2, 2}, .axes = {{0, 1}, {0, 1}}, .values = values_of(DType::kFloat64, {1, 3})};
  const Tensor tensor = from_coordinates(given, {0, 1}, {kDense, kSortedList}, 0);
  const Tensor same = reformatted(tensor, {0, 1}, {kDense, kSortedList});
  EXPECT_EQ(same.levels[1].coordinates.data(), tensor.levels[1].coordinates.data());
  const Tensor hashed = reformatted(tensor, {0, 1}, {kDense, kHash});
  check(hashed);
  EXPECT_EQ(hashed.levels[1].coordinates.data(), tensor.levels[1].coordinates.data());
  EXPECT_EQ(hashed.values.bytes.data(), tensor.values.bytes.data());
  const Tensor back = reformatted(hashed, {0, 1}, {kDense, kSortedList});
  check(back);
  EXPECT_EQ(back.bytes(), tensor.bytes());
}

TEST(SparseTensorReformat, CoordinatesAreRowMajorInAnyOrderOfLevels) {
  RandomTensors random(6);
  const Dims shape{30, 20, 40};
  const Coordinates given = coordinates_of(shape, DType::kFloat32, random.elements(shape, 9000, false));
  for (const std::vector<int64_t>& order : {std::vector<int64_t>{0, 1, 2}, {2, 1, 0}, {1, 2, 0}}) {
    const Tensor tensor = from_coordinates(given, order, {kSortedList, kDense, kHash}, 0, Operator::kAdd);
    const Coordinates back = to_coordinates(tensor);
    for (int64_t e = 1; e < back.count(); ++e) {
      const Dims before{back.axes[0][e - 1], back.axes[1][e - 1], back.axes[2][e - 1]};
      EXPECT_LT(before, (Dims{back.axes[0][e], back.axes[1][e], back.axes[2][e]}));
    }
  }
}

TEST(SparseTensorReformat, ElementsThatAreNoNumberEqualSuchAFill) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Coordinates given{.shape = {3}, .axes = {{0, 2}}, .values = values_of(DType::kFloat32, {nan, 1})};
  const Tensor tensor = from_coordinates(given, {0}, {kDense}, nan);
  EXPECT_EQ(to_coordinates(tensor).count(), 3);
  EXPECT_EQ(elements_of(to_coordinates(tensor, true)), (Elements{{{2}, 1}}));
}

TEST(SparseTensorReformat, AnUnmarkedBytemapDoesNotCount) {
  const Coordinates given{.shape = {4, 3}, .axes = {{1, 3}, {0, 2}}, .values = values_of(DType::kFloat32, {1, 2})};
  EXPECT_EQ(from_coordinates(given, {0, 1}, {kBytemap, kDense}, 0).stored(), 6);
  EXPECT_EQ(from_coordinates(given, {0, 1}, {kBytemap, kBytemap}, 0).stored(), 2);
  EXPECT_EQ(from_coordinates(given, {0, 1}, {kDense, kDense}, 0).stored(), 12);
  EXPECT_EQ(from_coordinates(given, {0, 1}, {kSortedList, kDense}, 0).stored(), 6);
}

TEST(SparseTensorReformat, AFormatForEachAxisIsNeeded) {
  const Coordinates given{.shape = {3}, .axes = {{0}}, .values = values_of(DType::kFloat32, {1})};
  const Tensor tensor = from_coordinates(given, {0}, {kDense}, 0);
  EXPECT_EQ(error_of([&] { reformatted(tensor, {0}, {kDense, kDense}); }),
            "sparse tensor: each axis needs one level: levels=2, shape=[3]");
  EXPECT_EQ(error_of([&] { reformatted(tensor, {1}, {kDense}); }),
            "sparse tensor: the order is no permutation of the axes: order=[1], shape=[3]");
}

}  // namespace
}  // namespace joinsum::sparse::tensor

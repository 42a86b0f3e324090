#include <limits>

#include <gtest/gtest.h>

#include "random_tensors.h"

namespace joinsum::sparse::tensor {

using operators::Operator;
namespace {

using enum LevelFormat;

/// A matrix of 3 by 4 of floats.
Tensor matrix(Level rows, Level columns, int64_t values) {
  rows.size = 3;
  columns.size = 4;
  return {.shape = {3, 4},
          .axes = {0, 1},
          .levels = {std::move(rows), std::move(columns)},
          .values = values_of(DType::kFloat32, std::vector<double>(values, 1))};
}

Tensor csr(Array<int64_t> offsets, Array<int64_t> coordinates, int64_t values = 3) {
  return matrix({.format = kDense},
                {.format = kSortedList, .offsets = std::move(offsets), .coordinates = std::move(coordinates)}, values);
}

std::string check_error(const Tensor& tensor) {
  return error_of([&] { check(tensor); });
}

TEST(SparseTensorCheck, ListsAreWhatTheyPromise) {
  EXPECT_EQ(check_error(csr({0, 1, 1, 3}, {1, 0, 3})), "no error");
  EXPECT_EQ(check_error(csr({0, 1, 3}, {1, 0, 3})),
            "sparse tensor: wrong number of offsets: level=1, offsets=3, fibers=3");
  EXPECT_EQ(check_error(csr({1, 1, 1, 3}, {1, 0, 3})), "sparse tensor: offsets do not start with 0: level=1, first=1");
  EXPECT_EQ(check_error(csr({0, 2, 1, 3}, {0, 1, 3})),
            "sparse tensor: offsets shrink: level=1, fiber=1, begin=2, end=1");
  EXPECT_EQ(check_error(csr({0, 1, 1, 2}, {1, 0, 3})),
            "sparse tensor: offsets do not end with the number of coordinates: level=1, end=2, coordinates=3");
  EXPECT_EQ(check_error(csr({0, 1, 1, 3}, {1, 0, 4})),
            "sparse tensor: coordinate out of range: level=1, fiber=2, place=2, coordinate=4, size=4");
  EXPECT_EQ(check_error(csr({0, 1, 1, 3}, {-1, 0, 3})),
            "sparse tensor: coordinate out of range: level=1, fiber=0, place=0, coordinate=-1, size=4");
  EXPECT_EQ(check_error(csr({0, 1, 1, 3}, {1, 3, 3})),
            "sparse tensor: coordinates do not ascend: level=1, fiber=2, place=2, coordinate=3, before=3");
  EXPECT_EQ(check_error(csr({0, 1, 1, 3}, {1, 0, 3}, 2)),
            "sparse tensor: each entry of the last level needs one value: values=2, entries=3");
}

TEST(SparseTensorCheck, ListsInAnyOrderAreSortedAndFolded) {
  const Tensor unsorted = csr({0, 3, 3, 5}, {2, 0, 2, 3, 1}, 5);
  const Tensor tensor = ascending(unsorted, Operator::kAdd);
  EXPECT_EQ(check_error(tensor), "no error");
  EXPECT_EQ(elements_of(to_coordinates(tensor)), (Elements{{{0, 0}, 1}, {{0, 2}, 2}, {{2, 1}, 1}, {{2, 3}, 1}}));
  const Tensor sorted = csr({0, 1, 1, 3}, {1, 0, 3});
  EXPECT_EQ(ascending(sorted, Operator::kAdd).values.bytes.data(), sorted.values.bytes.data());
  EXPECT_EQ(error_of([] { ascending(csr({0, 1, 1, 3}, {1, 0, 4}), Operator::kAdd); }),
            "sparse tensor: coordinate out of range: level=1, fiber=2, place=2, coordinate=4, size=4");
}

TEST(SparseTensorCheck, ABytemapMarksWhatIsBelow) {
  const auto marked = [](Array<uint8_t> stored, Array<int64_t> offsets, Array<int64_t> coordinates) {
    return check_error(
        matrix({.format = kBytemap, .stored = std::move(stored)},
               {.format = kSortedList, .offsets = std::move(offsets), .coordinates = std::move(coordinates)}, 2));
  };
  EXPECT_EQ(marked({1, 0, 1}, {0, 1, 1, 2}, {1, 3}), "no error");
  EXPECT_EQ(marked({1, 0}, {0, 1, 1, 2}, {1, 3}), "sparse tensor: wrong number of marks: level=0, marks=2, entries=3");
  EXPECT_EQ(marked({1, 2, 1}, {0, 1, 1, 2}, {1, 3}),
            "sparse tensor: a mark is neither 0 nor 1: level=0, fiber=0, place=1, mark=2");
  EXPECT_EQ(marked({1, 0, 1}, {0, 1, 2, 2}, {1, 3}),
            "sparse tensor: a fiber that a bytemap above leaves out has entries: level=1, fiber=1");
  EXPECT_EQ(check_error(matrix({.format = kBytemap, .stored = {1, 0, 1}},
                               {.format = kBytemap, .stored = {0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0}}, 12)),
            "sparse tensor: a fiber that a bytemap above leaves out has entries: level=1, fiber=1");
}

TEST(SparseTensorCheck, SizesOrdersAndEntriesFit) {
  Tensor tensor = csr({0, 1, 1, 3}, {1, 0, 3});
  tensor.levels[1].size = 5;
  EXPECT_EQ(check_error(tensor),
            "sparse tensor: a level differs in size from its axis: level=1, size=5, axis=1, shape=[3, 4]");
  tensor.axes = {1, 1};
  EXPECT_EQ(check_error(tensor), "sparse tensor: the order is no permutation of the axes: order=[1, 1], shape=[3, 4]");
  tensor.axes = {0, 1};
  tensor.levels.pop_back();
  EXPECT_EQ(check_error(tensor), "sparse tensor: each axis needs one level: levels=1, shape=[3, 4]");
  constexpr int64_t kLarge = int64_t{1} << 40;
  const Tensor large{.shape = {kLarge, kLarge},
                     .axes = {0, 1},
                     .levels = {{.format = kDense, .size = kLarge}, {.format = kDense, .size = kLarge}},
                     .values = values_of(DType::kFloat32, {1})};
  EXPECT_EQ(check_error(large),
            "sparse tensor: entries of a level exceed 64 bits: level=1, format=dense, fibers=1099511627776, "
            "size=1099511627776");
}

TEST(SparseTensorCheck, ValuesAreOfTheDtype) {
  const auto vector = [](Values values) {
    return check_error({.shape = {1}, .axes = {0}, .levels = {{.format = kDense, .size = 1}}, .values = values});
  };
  EXPECT_EQ(vector(values_of(DType::kBool, {1})), "no error");
  EXPECT_EQ(vector(values_of(DType::kBool, {2})), "sparse tensor: a bool is neither 0 nor 1: place=0, byte=2");
  EXPECT_EQ(vector({DType::kFloat32, Array<std::byte>(std::vector<std::byte>(5))}),
            "sparse tensor: each entry of the last level needs one value: values=1, entries=1");
  EXPECT_EQ(vector({DType::kComplex64, Array<std::byte>(std::vector<std::byte>(8))}),
            "sparse tensor: unsupported dtype: dtype=c64, supported=[f32, f64, i32, i64, u8, bool]");
}

}  // namespace
}  // namespace joinsum::sparse::tensor

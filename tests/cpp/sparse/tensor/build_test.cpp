#include <limits>

#include <gtest/gtest.h>

#include "random_tensors.h"

namespace joinsum::sparse::tensor {

using operators::Operator;
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
using enum LevelFormat;

double folded_numbers(Operator fold, double a, double b, bool truths) {
  const double value = apply(fold, a, b);
  return truths ? static_cast<double>(value != 0) : value;
}

Elements folded(const std::vector<std::pair<Dims, double>>& elements, Operator fold, bool truths) {
  Elements out;
  for (const auto& [at, number] : elements) {
    const auto [found, first] = out.emplace(at, number);
    if (!first) found->second = folded_numbers(fold, found->second, number, truths);
  }
  // Also of what is not repeated.
  const bool gives_truths = fold == Operator::kAnd || fold == Operator::kOr;
  for (auto& [at, number] : out) number = gives_truths ? static_cast<double>(number != 0) : number;
  return out;
}

/// Every stored element is where the levels say, and every other coordinate holds the fill or nothing.
void expect_elements(const Tensor& tensor, const Elements& expected) {
  for_each_key(Box::below(tensor.shape), [&](const Key& at) {
    const auto found = expected.find(at);
    const std::optional<double> stored = element_at(tensor, at);
    if (found != expected.end()) {
      ASSERT_TRUE(stored.has_value()) << key_text(at);
      EXPECT_EQ(*stored, found->second) << key_text(at);
    } else if (stored) {
      EXPECT_EQ(*stored, tensor.fill) << key_text(at);
    }
  });
}

/// Returns how many lists are noted to have single entries.
int64_t expect_single_lists_are_noted(const Tensor& tensor) {
  int64_t noted = 0;
  for (const Level& level : tensor.levels) {
    const bool lists = level.format == kSortedList || level.format == kHash;
    bool single = lists;
    for (int64_t fiber = 0; lists && fiber + 1 < level.offsets.size(); ++fiber)
      single = single && level.offsets[fiber + 1] - level.offsets[fiber] == 1;
    EXPECT_EQ(level.single, single);
    noted += int64_t{single};
  }
  return noted;
}

bool all_listed(const std::vector<LevelFormat>& formats) {
  for (const LevelFormat format : formats) {
    if (format == kDense) return false;
  }
  return true;
}

TEST(SparseTensorBuild, EveryNestingAndOrderHoldsTheElementsOfAMap) {
  RandomTensors random(1);
  const std::vector<Operator> folds{Operator::kAdd, Operator::kMultiply, Operator::kMin,
                                    Operator::kMax, Operator::kAnd,      Operator::kOr};
  int64_t noted = 0;
  for (int64_t rank = 0; rank <= 3; ++rank) {
    for (const std::vector<LevelFormat>& formats : nestings(rank)) {
      for (const DType dtype : element_types()) {
        const Dims shape = random.shape(rank, 5);
        const bool truths = dtype == DType::kBool;
        const auto elements = random.elements(shape, random.below(12), truths);
        const Operator fold = folds[random.below(6)];
        const double fill = random.below(2) == 0 ? 0.0 : 1.0;
        const Elements expected = folded(elements, fold, truths);
        const Tensor tensor =
            from_coordinates(coordinates_of(shape, dtype, elements), random.order(rank), formats, fill, fold);
        check(tensor);
        noted += expect_single_lists_are_noted(tensor);
        expect_elements(tensor, expected);
        const Elements back = elements_of(to_coordinates(tensor));
        for (const auto& [at, number] : expected) EXPECT_EQ(back.at(at), number);
        EXPECT_EQ(static_cast<int64_t>(back.size()), tensor.stored());
        if (all_listed(formats)) {
          EXPECT_EQ(back, expected);
        }
      }
    }
  }
  EXPECT_GT(noted, 50);
}

TEST(SparseTensorBuild, ManyUnsortedElementsAreSortedByRadix) {
  RandomTensors random(2);
  const Dims shape{1000, 70, 3};
  const auto elements = random.elements(shape, 40000, false);
  const Coordinates given = coordinates_of(shape, DType::kInt64, elements);
  for (const std::vector<int64_t>& order : {std::vector<int64_t>{0, 1, 2}, {1, 2, 0}, {2, 0, 1}, {0, 2, 1}}) {
    const Tensor tensor = from_coordinates(given, order, {kDense, kSortedList, kHash}, 0, Operator::kAdd);
    check(tensor);
    EXPECT_EQ(elements_of(to_coordinates(tensor)), folded(elements, Operator::kAdd, false));
    EXPECT_EQ(elements_of(to_coordinates(reformatted(tensor, {2, 1, 0}, {kBytemap, kHash, kSortedList}))),
              folded(elements, Operator::kAdd, false));
  }
}

TEST(SparseTensorBuild, ExtentsWhoseProductExceeds64BitsAreSorted) {
  constexpr int64_t kLarge = std::numeric_limits<int64_t>::max();
  RandomTensors random(3);
  for (const int64_t count : {50, 6000}) {
    const Dims shape{kLarge, int64_t{1} << 40, kLarge};
    auto elements = random.elements(shape, count, false);
    elements.emplace_back(Dims{kLarge - 1, 0, kLarge - 1}, 3.0);
    elements.push_back(elements.front());
    const Tensor tensor = from_coordinates(coordinates_of(shape, DType::kFloat64, elements), {2, 0, 1},
                                           {kSortedList, kHash, kSortedList}, 0, Operator::kAdd);
    check(tensor);
    EXPECT_EQ(elements_of(to_coordinates(tensor)), folded(elements, Operator::kAdd, false));
  }
}

TEST(SparseTensorBuild, ASpellingOfCsrIsItsArrays) {
  const Coordinates given{
      .shape = {3, 4}, .axes = {{2, 0, 2}, {3, 1, 0}}, .values = values_of(DType::kFloat32, {1, 2, 3})};
  const Tensor csr = from_coordinates(given, {0, 1}, {kDense, kSortedList}, 0);
  const Level& columns = csr.levels[1];
  EXPECT_EQ(std::vector<int64_t>(columns.offsets.begin(), columns.offsets.end()), (std::vector<int64_t>{0, 1, 1, 3}));
  EXPECT_EQ(std::vector<int64_t>(columns.coordinates.begin(), columns.coordinates.end()),
            (std::vector<int64_t>{1, 0, 3}));
  EXPECT_EQ(csr.values.as<float>()[1], 3.0F);
  EXPECT_EQ(csr.stored(), 3);
  EXPECT_EQ(csr.bytes(), 4 * 8 + 3 * 8 + 3 * 4);
}

TEST(SparseTensorBuild, SortedElementsShareTheirValues) {
  const Coordinates given{
      .shape = {3, 4}, .axes = {{0, 2, 2}, {1, 0, 3}}, .values = values_of(DType::kFloat32, {1, 2, 3})};
  EXPECT_EQ(from_coordinates(given, {0, 1}, {kDense, kSortedList}, 0).values.bytes.data(), given.values.bytes.data());
}

TEST(SparseTensorBuild, RepeatedElementsFoldInTheOrderGiven) {
  // In floats, (2^24 + 1) + -2^24 is 0 and (2^24 + -2^24) + 1 is 1.
  const double large = 16777216;
  const auto sum = [](const std::vector<double>& numbers) {
    const Coordinates given{.shape = {2}, .axes = {{1, 1, 1}}, .values = values_of(DType::kFloat32, numbers)};
    return number_at(from_coordinates(given, {0}, {kSortedList}, 0, Operator::kAdd).values, 0);
  };
  EXPECT_EQ(sum({large, 1, -large}), 0);
  EXPECT_EQ(sum({large, -large, 1}), 1);
}

TEST(SparseTensorBuild, IntegersOf64BitsFoldExactly) {
  const std::vector<int64_t> numbers{(int64_t{1} << 60) + 1, 1};
  std::vector<std::byte> bytes(16);
  std::memcpy(bytes.data(), numbers.data(), 16);
  const Coordinates given{.shape = {2}, .axes = {{0, 0}}, .values = {DType::kInt64, std::move(bytes)}};
  EXPECT_EQ(from_coordinates(given, {0}, {kDense}, 0, Operator::kAdd).values.as<int64_t>()[0], (int64_t{1} << 60) + 2);
}

TEST(SparseTensorBuild, AScalarIsStoredOrAtItsFill) {
  const Tensor stored = from_coordinates({.values = values_of(DType::kFloat64, {5})}, {}, {}, 7);
  EXPECT_EQ(stored.stored(), 1);
  EXPECT_EQ(number_at(stored.values, 0), 5);
  const Tensor absent = from_coordinates({.values = values_of(DType::kFloat64, {})}, {}, {}, 7);
  check(absent);
  EXPECT_EQ(absent.stored(), 0);
  EXPECT_EQ(number_at(absent.values, 0), 7);
  EXPECT_EQ(to_coordinates(absent).count(), 0);
  EXPECT_EQ(
      number_at(from_coordinates({.values = values_of(DType::kInt32, {5, 6})}, {}, {}, 0, Operator::kAdd).values, 0),
      11);
}

TEST(SparseTensorBuild, RankEightHoldsItsElements) {
  RandomTensors random(4);
  const Dims shape{2, 3, 1, 2, 4, 2, 3, 2};
  const auto elements = random.elements(shape, 30, false);
  const Tensor tensor =
      from_coordinates(coordinates_of(shape, DType::kUInt8, elements), {7, 0, 3, 2, 1, 6, 5, 4},
                       {kHash, kSortedList, kDense, kBytemap, kSortedList, kDense, kHash, kBytemap}, 0, Operator::kMax);
  check(tensor);
  expect_elements(tensor, folded(elements, Operator::kMax, false));
}

TEST(SparseTensorBuild, AFillIsAValueOfTheDtype) {
  const auto error = [](DType dtype, double fill) {
    return error_of(
        [&] { from_coordinates({.shape = {0}, .axes = {{}}, .values = values_of(dtype, {})}, {0}, {kDense}, fill); });
  };
  EXPECT_EQ(error(DType::kFloat32, kInfinity), "no error");
  EXPECT_EQ(error(DType::kFloat32, std::nan("")), "no error");
  EXPECT_EQ(error(DType::kInt32, kInfinity),
            "sparse tensor: the dtype has no such value as the fill: fill=inf, dtype=i32");
  EXPECT_EQ(error(DType::kInt64, 0.5), "sparse tensor: the dtype has no such value as the fill: fill=0.5, dtype=i64");
  EXPECT_EQ(error(DType::kUInt8, -1), "sparse tensor: the dtype has no such value as the fill: fill=-1, dtype=u8");
  EXPECT_EQ(error(DType::kBool, 2), "sparse tensor: the dtype has no such value as the fill: fill=2, dtype=bool");
  EXPECT_EQ(error(DType::kFloat32, 1e300),
            "sparse tensor: the dtype has no such value as the fill: fill=1e+300, dtype=f32");
}

/// The error of two elements at `axes` of a matrix of 3 by 4.
std::string matrix_error(const std::vector<Array<int64_t>>& axes, const Dims& shape = {3, 4},
                         const std::vector<int64_t>& order = {0, 1}, int64_t largest = int64_t{1} << 40,
                         std::optional<Operator> fold = {}) {
  return error_of([&] {
    from_coordinates({.shape = shape, .axes = axes, .values = values_of(DType::kFloat32, {1, 2})}, order,
                     {kDense, kBytemap}, 0, fold, largest);
  });
}

TEST(SparseTensorBuild, MalformedCoordinatesAreNamed) {
  EXPECT_EQ(matrix_error({{0, 3}, {0, 1}}),
            "sparse tensor: coordinate out of range: axis=0, place=1, coordinate=3, size=3");
  EXPECT_EQ(matrix_error({{0, 1}, {-1, 1}}),
            "sparse tensor: coordinate out of range: axis=1, place=0, coordinate=-1, size=4");
  EXPECT_EQ(matrix_error({{2, 2}, {1, 1}}),
            "sparse tensor: a coordinate is repeated, and no fold is named: coordinate=[2, 1], places=[0, 1]");
  EXPECT_EQ(matrix_error({{2, 2}, {1}}),
            "sparse tensor: coordinates and values differ in number: axis=1, coordinates=1, values=2");
  EXPECT_EQ(matrix_error({{2, 1}}), "sparse tensor: each axis needs its coordinates: axes=1, shape=[3, 4]");
  EXPECT_EQ(matrix_error({{0, 1}, {0, 1}}, {3, -1}), "sparse tensor: negative size: axis=1, shape=[3, -1]");
  EXPECT_EQ(matrix_error({{0, 1}, {0, 1}}, {3, 4}, {0, 0}),
            "sparse tensor: the order is no permutation of the axes: order=[0, 0], shape=[3, 4]");
  EXPECT_EQ(matrix_error({{0, 1}, {0, 1}}, {3, 4}, {0, 1}, 59),
            "sparse tensor: a level would hold too many bytes: level=1, format=bytemap, entries=12, bytes an entry=5, "
            "largest=59");
  EXPECT_EQ(matrix_error({{0, 1}, {0, 1}}, {3, 4}, {0, 1}, 60), "no error");
  EXPECT_EQ(matrix_error({{2, 2}, {1, 1}}, {3, 4}, {0, 1}, 60, Operator::kSubtract),
            "sparse tensor: repeated elements cannot be folded by an operator that does not aggregate: fold=-, "
            "operators=[+, *, min, max, and, or]");
}

TEST(SparseTensorBuild, DenseLevelsWhoseEntriesOverflowAreNamed) {
  constexpr int64_t kHalf = int64_t{1} << 32;
  EXPECT_EQ(matrix_error({{0, 1}, {0, 1}}, {kHalf, kHalf}),
            "sparse tensor: entries of a level exceed 64 bits: level=1, format=bytemap, fibers=4294967296, "
            "size=4294967296");
}

TEST(SparseTensorBuild, OtherDtypesAndBytesAreNamed) {
  const auto error = [](Values values) {
    return error_of([&] { from_coordinates({.shape = {2}, .axes = {{0}}, .values = values}, {0}, {kSortedList}, 0); });
  };
  EXPECT_EQ(error({DType::kFloat16, Array<std::byte>(std::vector<std::byte>(2))}),
            "sparse tensor: unsupported dtype: dtype=f16, supported=[f32, f64, i32, i64, u8, bool]");
  EXPECT_EQ(error({DType::kFloat32, Array<std::byte>(std::vector<std::byte>(3))}),
            "sparse tensor: the values' bytes are no multiple of an element's: bytes=3, dtype=f32");
  EXPECT_EQ(error(values_of(DType::kBool, {2})), "sparse tensor: a bool is neither 0 nor 1: place=0, byte=2");
}

TEST(SparseTensorBuild, FormatsHaveNames) {
  for (const LevelFormat format : {kDense, kBytemap, kSortedList, kHash}) {
    EXPECT_EQ(level_format_named(name_of(format)), format);
  }
  EXPECT_EQ(error_of([] { level_format_named("csr"); }),
            "sparse tensor: no such level format: name=csr, formats=[dense, bytemap, sorted_list, hash]");
}

}  // namespace
}  // namespace joinsum::sparse::tensor

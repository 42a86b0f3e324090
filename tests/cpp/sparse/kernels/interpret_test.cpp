#include "sparse/kernels/interpret.h"

#include <array>
#include <map>

#include <gtest/gtest.h>

#include "sparse/kernels/expectations.h"
#include "sparse/kernels/prepared.h"

namespace joinsum::sparse::kernels {

using namespace operators;  // NOLINT: the tests' own words
using namespace tensor;     // NOLINT
namespace {

class EachDType : public ::testing::TestWithParam<DType> {};

TEST_P(EachDType, ARandomKernelIsTheBruteForceOverAllCoordinates) {
  RandomKernels random(20240917 + static_cast<uint64_t>(GetParam()));
  for (int round = 0; round < 1500; ++round) {
    Case drawn = random.draw(GetParam());
    check(drawn.kernel);
    if (round % 2 == 1) drawn.kernel = with_single_loops(drawn.kernel, drawn.arguments());
    InterpreterOptions options{.threads = 1 + round % 3, .range_entries = 1};
    // Every other workspace is a hash table.
    if (random.below(2) == 0) options.largest_array = 0;
    expect_brute_force(drawn, interpret(drawn.kernel, drawn.arguments(), options));
    if (::testing::Test::HasFailure()) FAIL() << "round " << round << "\n" << text_of(drawn);
  }
}

TEST_P(EachDType, ALongKernelIsTheBruteForceOverAllCoordinates) {
  RandomKernels random(52 + static_cast<uint64_t>(GetParam()));
  for (int round = 0; round < 60; ++round) {
    const Case drawn = random.draw_long(GetParam());
    InterpreterOptions options{.threads = 1 + round % 3, .range_entries = 100};
    if (random.below(2) == 0) options.largest_array = 0;
    expect_brute_force(drawn, interpret(drawn.kernel, drawn.arguments(), options));
    if (::testing::Test::HasFailure()) FAIL() << "round " << round << "\n" << text_of(drawn);
  }
}

TEST_P(EachDType, LoopsThatOneOperandWalksAloneAreMerged) {
  RandomKernels random(808 + static_cast<uint64_t>(GetParam()));
  int merged = 0;
  for (int round = 0; round < 1500; ++round) {
    Case drawn = random.draw_listed(GetParam());
    check(drawn.kernel);
    const KernelArguments arguments = drawn.arguments();
    if (round % 2 == 1) drawn.kernel = with_single_loops(drawn.kernel, arguments);
    merged += prepared(drawn.kernel, arguments).nest.innermost + 1 < std::ssize(drawn.extents);
    InterpreterOptions options{.threads = 1 + round % 3, .range_entries = 1};
    if (random.below(2) == 0) options.largest_array = 0;
    expect_brute_force(drawn, interpret(drawn.kernel, arguments, options));
    if (::testing::Test::HasFailure()) FAIL() << "round " << round << "\n" << text_of(drawn);
  }
  EXPECT_GT(merged, 300);
}

TEST_P(EachDType, LoopsOfOneVisitLeaveElementsInOrder) {
  RandomKernels random(31 + static_cast<uint64_t>(GetParam()));
  std::map<ResultWay, int> ways;
  int appended = 0, merged = 0;
  for (int round = 0; round < 1500; ++round) {
    Case drawn = random.draw_single(GetParam());
    check(drawn.kernel);
    const ResultWay before = way_of(drawn.kernel);
    drawn.kernel = with_single_loops(drawn.kernel, drawn.arguments());
    const Prepared run = prepared(drawn.kernel, drawn.arguments());
    if (before == ResultWay::kWorkspace) ++ways[run.way];
    appended += run.appends;
    merged += run.appends && run.nest.innermost + 1 < std::ssize(drawn.extents);
    InterpreterOptions options{.threads = 1 + round % 3, .entries = round % 2 * 100, .range_entries = 1};
    if (random.below(2) == 0) options.largest_array = 0;
    expect_brute_force(drawn, interpret(drawn.kernel, drawn.arguments(), options));
    if (::testing::Test::HasFailure()) FAIL() << "round " << round << "\n" << text_of(drawn);
  }
  EXPECT_GT(ways[ResultWay::kInOrder], 100);
  EXPECT_GT(ways[ResultWay::kWorkspace], 100);
  EXPECT_GT(appended, 100);
  EXPECT_GT(merged, 30);
}

INSTANTIATE_TEST_SUITE_P(Interpret, EachDType, ::testing::ValuesIn(element_types()),
                         [](const auto& dtype) { return name_of(dtype.param); });

/// The sum over i of A_ij · x_i for the elements of `count` rows, which are no round numbers.
struct ColumnSums {
  explicit ColumnSums(int64_t count) {
    using enum LevelFormat;
    std::vector<std::pair<Dims, double>> elements;
    std::vector<std::pair<Dims, double>> factors;
    for (int64_t i = 0; i < count; ++i) {
      factors.push_back({{i}, std::sin(static_cast<double>(i))});
      for (int64_t j = i % 3; j < 7; j += 3) elements.push_back({{i, j}, 1.0 / static_cast<double>(1 + i + j)});
    }
    a = from_coordinates(coordinates_of({count, 7}, DType::kFloat64, elements), {0, 1}, {kDense, kSortedList}, 0);
    x = from_coordinates(coordinates_of({count}, DType::kFloat64, factors), {0}, {kDense}, 0);
    kernel.operands = {{.loops = {0, 1}, .formats = {kDense, kSortedList}}, {.loops = {0}, .formats = {kDense}}};
    kernel.loops = {{.walkers = {0}, .lookups = {1}}, {.walkers = {0}}};
    kernel.body = {{.kind = BodyNode::Kind::kOperand, .operand = 0},
                   {.kind = BodyNode::Kind::kOperand, .operand = 1},
                   {.kind = BodyNode::Kind::kMap, .op = Operator::kMultiply, .children = {0, 1}}};
    kernel.aggregate = Operator::kAdd;
    kernel.output = {1};
    derive(kernel);
  }
  KernelArguments arguments() const { return {{&a, &x}, {x.shape[0], 7}}; }

  Tensor a;
  Tensor x;
  Kernel kernel;
};

/// Sums over k, or over j and k, of A_ijk · x_j · w_k, where row i of A has `lists[i]` entries below its only j; the
/// row `twice`, if there is one, has another j with one entry.
struct ListsOfLengths {
  ListsOfLengths(const std::vector<int64_t>& lists, std::vector<int64_t> output, LevelFormat format, int64_t twice) {
    using enum LevelFormat;
    const auto rows = static_cast<int64_t>(lists.size());
    std::vector<std::pair<Dims, double>> elements, of_j, of_k;
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t k = 0; k < lists[i]; ++k) {
        elements.push_back({{i, i % 7, k}, std::cos(static_cast<double>(elements.size()))});
      }
      if (i == twice) elements.push_back({{i, 7, 5}, 0.5});
    }
    for (int64_t j = 0; j < 8; ++j) of_j.push_back({{j}, static_cast<double>(j + 1)});
    for (int64_t k = 0; k < kLongest; ++k) of_k.push_back({{k}, 1.0 / static_cast<double>(k + 3)});
    drawn.extents = {rows, 8, kLongest};
    const auto lists_of = [](size_t rank) { return std::vector<LevelFormat>(rank, kSortedList); };
    drawn.tensors.push_back(
        from_coordinates(coordinates_of(drawn.extents, DType::kFloat64, elements), {0, 1, 2}, lists_of(3), 0));
    drawn.tensors.push_back(from_coordinates(coordinates_of({8}, DType::kFloat64, of_j), {0}, {kDense}, 0));
    drawn.tensors.push_back(from_coordinates(coordinates_of({kLongest}, DType::kFloat64, of_k), {0}, {kDense}, 0));
    Kernel& kernel = drawn.kernel;
    kernel.operands = {{.loops = {0, 1, 2}, .formats = lists_of(3)},
                       {.loops = {1}, .formats = {kDense}},
                       {.loops = {2}, .formats = {kDense}}};
    kernel.loops = {{.walkers = {0}}, {.walkers = {0}, .lookups = {1}}, {.walkers = {0}, .lookups = {2}}};
    for (int64_t o = 0; o < 3; ++o) kernel.body.push_back({.kind = BodyNode::Kind::kOperand, .operand = o});
    kernel.body.push_back({.kind = BodyNode::Kind::kMap, .op = Operator::kMultiply, .children = {0, 1, 2}});
    kernel.aggregate = Operator::kAdd;
    kernel.formats.assign(output.size(), format);
    kernel.output = std::move(output);
    derive(kernel);
  }

  static constexpr int64_t kLongest = 300;
  Case drawn;
};

TEST(Interpret, MergedLoopsTakeListsOfAllLengths) {
  // Whole blocks of lists of one entry, then lists that are longer than a block, and none.
  std::vector<int64_t> lists(256, 1);
  for (const int64_t length : {300, 1, 0, 1, 2}) lists.push_back(length);
  lists.resize(350, 1);
  for (const int64_t length : {3, 1, 280, 0}) lists.push_back(length);
  const std::vector<std::vector<int64_t>> outputs{{0}, {1}, {2}, {0, 1}, {2, 1}, {}};
  const auto last = std::ssize(lists) - 2;  // with 280 entries
  for (size_t round = 0; round < 3 * outputs.size(); ++round) {
    const std::vector<int64_t>& output = outputs[round / 3];
    const int64_t twice = std::array<int64_t, 3>{-1, 0, last}[round % 3];
    for (const LevelFormat format : {LevelFormat::kDense, LevelFormat::kHash}) {
      const ListsOfLengths made(lists, output, format, twice);
      const KernelArguments arguments = made.drawn.arguments();
      const InterpreterOptions alone{.range_entries = 50};
      const Tensor one = interpret(made.drawn.kernel, arguments, alone);
      if (format == LevelFormat::kDense) expect_brute_force(made.drawn, one);
      for (const int threads : {2, 3}) {
        InterpreterOptions options{.threads = threads, .range_entries = 50};
        const Tensor many = interpret(made.drawn.kernel, arguments, options);
        options.largest_array = 0;
        const Tensor hashed = interpret(made.drawn.kernel, arguments, options);
        for (const Key& key : keys_of(Box::below(one.shape))) {
          EXPECT_EQ(element_at(many, key), element_at(one, key));
          EXPECT_EQ(element_at(hashed, key), element_at(one, key));
        }
      }
      if (::testing::Test::HasFailure()) FAIL() << "round " << round;
    }
  }
}

TEST(Interpret, ResultsDoNotDependOnTheNumberOfThreads) {
  ColumnSums sums(20000);
  for (const LevelFormat format : {LevelFormat::kDense, LevelFormat::kSortedList, LevelFormat::kHash}) {
    sums.kernel.formats = {format};
    const Tensor one = interpret(sums.kernel, sums.arguments(), 1);
    for (const int threads : {2, 3, 8}) {
      const Tensor many = interpret(sums.kernel, sums.arguments(), threads);
      for (int64_t j = 0; j < 7; ++j) EXPECT_EQ(element_at(many, {j}), element_at(one, {j})) << threads;
    }
  }
}

TEST(Interpret, ArgumentsThatAreNotTheKernelsAreErrorsThatNameThem) {
  ColumnSums sums(4);
  sums.kernel.formats = {LevelFormat::kDense};
  const auto error = [&](const auto& change) {
    KernelArguments arguments = sums.arguments();
    change(arguments);
    return error_of([&] { interpret(sums.kernel, arguments); });
  };
  EXPECT_EQ(error([](KernelArguments&) {}), "no error");
  EXPECT_EQ(error([](KernelArguments& a) { a.operands.pop_back(); }),
            "kernel: another number of operands: given=1, wanted=2");
  EXPECT_EQ(error([](KernelArguments& a) { a.extents = {4}; }), "kernel: another number of extents: given=1, wanted=2");
  EXPECT_EQ(error([](KernelArguments& a) { a.extents[1] = 8; }),
            "kernel: a level has another extent: operand=0, level=1, size=7, wanted=8");
  EXPECT_EQ(error([](KernelArguments& a) { a.operands[1] = a.operands[0]; }),
            "kernel: an operand has another number of levels: operand=1, levels=2, wanted=1");
  Tensor other = sums.x;
  other.fill = 1;
  EXPECT_EQ(error([&](KernelArguments& a) { a.operands[1] = &other; }),
            "kernel: an operand has another fill: operand=1, fill=1, wanted=0");
}

TEST(Interpret, AResultThatDoesNotFitIsAnError) {
  ColumnSums sums(4);
  Kernel& kernel = sums.kernel;
  kernel.loops.push_back({});
  kernel.output = {2};
  kernel.formats = {LevelFormat::kDense};
  KernelArguments arguments = sums.arguments();
  arguments.extents.push_back(int64_t{1} << 50);
  EXPECT_NE(error_of([&] { interpret(kernel, arguments); }).find("the result does not fit"), std::string::npos);
}

}  // namespace
}  // namespace joinsum::sparse::kernels

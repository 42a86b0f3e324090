#include "sparse/kernels/generate.h"

#include <cmath>
#include <cstdlib>
#include <filesystem>

#include <gtest/gtest.h>

#include "sparse/kernels/argument_order.h"
#include "sparse/kernels/compilation/compiler.h"
#include "sparse/kernels/expectations.h"
#include "sparse/kernels/prepared.h"
#include "sparse/kernels/run.h"
#include "sparse/kernels/temporary_folder.h"

namespace joinsum::sparse::kernels {

using namespace operators;  // NOLINT: the tests' own words
using namespace tensor;     // NOLINT
namespace {

/// Compiles many kernels at once: most of the time goes to starting the compiler.
std::vector<GeneratedFunction> compiled(const std::vector<Case>& cases) {
  const TemporaryFolder folder;
  std::string source = generated_preamble();
  for (size_t i = 0; i < cases.size(); ++i) {
    source += "\n" + generated_function(cases[i].kernel, cases[i].dtype, "kernel" + std::to_string(i));
  }
  const auto library = compilation::compile(source, {.cache_folder = folder.path()}).library;
  std::vector<GeneratedFunction> out;
  for (size_t i = 0; i < cases.size(); ++i) {
    out.push_back(reinterpret_cast<GeneratedFunction>(library->symbol("kernel" + std::to_string(i))));
  }
  return out;
}

TEST(Generate, ACompiledKernelIsTheInterpretedOneAndTheBruteForce) {
  RandomKernels random(77);
  std::vector<Case> cases;
  for (int i = 0; i < 160; ++i) {
    const DType dtype = element_types()[i % 6];
    cases.push_back(i % 10 == 0  ? random.draw_long(dtype)
                    : i % 4 == 1 ? random.draw_single(dtype)
                                 : random.draw(dtype));
    if (i % 2 == 1) cases.back().kernel = with_single_loops(cases.back().kernel, cases.back().arguments());
  }
  const std::vector<GeneratedFunction> functions = compiled(cases);
  for (size_t i = 0; i < cases.size(); ++i) {
    const Case& drawn = cases[i];
    InterpreterOptions options{.threads = static_cast<int>(1 + i % 3), .range_entries = 1};
    if (i % 4 == 0) options.largest_array = 0;
    const Tensor result = run_generated(drawn.kernel, drawn.arguments(), functions[i], options);
    expect_same(result, interpret(drawn.kernel, drawn.arguments(), options));
    expect_brute_force(drawn, result);
    if (::testing::Test::HasFailure()) {
      FAIL() << "case " << i << "\n" << text_of(drawn) << "\n" << generated_function(drawn.kernel, drawn.dtype, "it");
    }
  }
}

/// Whether a map is computed by other instructions in the two engines.
bool is_exponential(const BodyNode& node) {
  return node.kind == BodyNode::Kind::kMap && (node.op == Operator::kExp || node.op == Operator::kSigmoid);
}

TEST(Generate, ACompiledKernelAddsInTheOrderOfTheInterpretedOne) {
  RandomKernels random(1, true);
  std::vector<Case> cases;
  while (std::ssize(cases) < 180) {
    const DType dtype = std::ssize(cases) % 3 == 0 ? DType::kFloat32 : DType::kFloat64;
    Case drawn = random.below(4) == 0   ? random.draw_long(dtype)
                 : random.below(4) == 0 ? random.draw_single(dtype)
                 : random.below(2) == 0 ? random.draw_listed(dtype)
                                        : random.draw(dtype);
    if (std::ranges::any_of(drawn.kernel.body, is_exponential)) continue;
    if (random.below(2) == 0) drawn.kernel = with_single_loops(drawn.kernel, drawn.arguments());
    if (random.below(4) != 0) order_arguments(drawn.kernel);
    cases.push_back(std::move(drawn));
  }
  const std::vector<GeneratedFunction> functions = compiled(cases);
  for (size_t i = 0; i < cases.size(); ++i) {
    const Case& drawn = cases[i];
    InterpreterOptions options{.range_entries = 1};
    if (i % 4 == 0) options.largest_array = 0;
    const Tensor result = run_generated(drawn.kernel, drawn.arguments(), functions[i], options);
    const Tensor interpreted = interpret(drawn.kernel, drawn.arguments(), options);
    const auto text = [&] { return text_of(drawn) + "\n" + generated_function(drawn.kernel, drawn.dtype, "it"); };
    for (const Key& key : keys_of(Box::below(result.shape))) {
      const double a = element_at(result, key).value_or(result.fill);
      const double b = element_at(interpreted, key).value_or(interpreted.fill);
      ASSERT_TRUE(a == b || (a != a && b != b)) << "case " << i << ": " << a << " and " << b << "\n" << text();
    }
  }
}

/// A row for each first index, whose elements are no round numbers; the sum over rows of A_ij · x_i, or over columns.
Case real_sums(int64_t rows, bool over_rows, LevelFormat format) {
  using enum LevelFormat;
  std::vector<std::pair<Dims, double>> elements, factors;
  for (int64_t i = 0; i < rows; ++i) {
    factors.push_back({{i}, std::sin(static_cast<double>(i))});
    for (int64_t j = i % 3; j < 7; j += 3) elements.push_back({{i, j}, 1.0 / static_cast<double>(1 + i + j)});
  }
  Case out{.extents = {rows, 7}};
  out.tensors.push_back(
      from_coordinates(coordinates_of({rows, 7}, DType::kFloat64, elements), {0, 1}, {kDense, kSortedList}, 0));
  out.tensors.push_back(from_coordinates(coordinates_of({rows}, DType::kFloat64, factors), {0}, {kDense}, 0));
  out.kernel.operands = {{.loops = {0, 1}, .formats = {kDense, kSortedList}}, {.loops = {0}, .formats = {kDense}}};
  out.kernel.loops = {{.walkers = {0}, .lookups = {1}}, {.walkers = {0}}};
  out.kernel.body = {{.kind = BodyNode::Kind::kOperand, .operand = 0},
                     {.kind = BodyNode::Kind::kOperand, .operand = 1},
                     {.kind = BodyNode::Kind::kMap, .op = Operator::kMultiply, .children = {0, 1}}};
  out.kernel.aggregate = Operator::kAdd;
  out.kernel.output = {over_rows ? 1 : 0};
  out.kernel.formats = {format};
  derive(out.kernel);
  return out;
}

TEST(Generate, ResultsOfRealNumbersDoNotDependOnTheNumberOfThreads) {
  std::vector<Case> cases;
  for (const bool over_rows : {true, false}) {
    for (const LevelFormat format : {LevelFormat::kDense, LevelFormat::kSortedList, LevelFormat::kHash}) {
      cases.push_back(real_sums(20000, over_rows, format));
    }
  }
  const std::vector<GeneratedFunction> functions = compiled(cases);
  for (size_t i = 0; i < cases.size(); ++i) {
    const Case& drawn = cases[i];
    const auto elements_on = [&](int threads) {
      return elements_of(
          to_coordinates(run_generated(drawn.kernel, drawn.arguments(), functions[i], {.threads = threads})));
    };
    const Elements one = elements_on(1);
    EXPECT_EQ(std::ssize(one), drawn.extents[drawn.kernel.output[0]]);
    for (const int threads : {2, 3, 8}) EXPECT_TRUE(elements_on(threads) == one) << "case " << i << ", " << threads;
  }
}

TEST(Generate, LiteralsAreHexFloats) {
  Kernel kernel{.body = {{.literal = 0.1}}};
  derive(kernel);
  EXPECT_NE(generate(kernel, DType::kFloat64).find("const T x0 = 0x1.999999999999ap-4;"), std::string::npos);
}

TEST(Generate, ASourceIncludesNoHeaderButTheIntegers) {
  const std::string& text = generated_preamble();
  EXPECT_EQ(text.find("#include <cstdint>"), 0U);
  EXPECT_EQ(text.find("#include", 1), std::string::npos);
}

}  // namespace
}  // namespace joinsum::sparse::kernels

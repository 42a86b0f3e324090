#include "sparse/kernels/run.h"

#include <cstdlib>
#include <fstream>

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "sparse/kernels/expectations.h"
#include "sparse/kernels/temporary_folder.h"

namespace joinsum::sparse::kernels {

using namespace operators;  // NOLINT: the tests' own words
using namespace tensor;     // NOLINT
namespace {

/// Sets a variable of the environment while it stands.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

/// The sum over j of A_ij · x_j, times a number of its own, so that each test compiles.
struct Product {
  explicit Product(double factor) {
    using enum LevelFormat;
    const auto vector = coordinates_of({3}, DType::kFloat64, {{{0}, 1}, {{1}, 2}, {{2}, 3}});
    const auto matrix = coordinates_of({2, 3}, DType::kFloat64, {{{0, 0}, 1}, {{0, 2}, 4}, {{1, 1}, 5}});
    x = from_coordinates(vector, {0}, {kDense}, 0);
    a = from_coordinates(matrix, {0, 1}, {kDense, kSortedList}, 0);
    kernel.operands = {{.loops = {0, 1}, .formats = {kDense, kSortedList}}, {.loops = {1}, .formats = {kDense}}};
    kernel.loops = {{.walkers = {0}}, {.walkers = {0}, .lookups = {1}}};
    kernel.body = {{.kind = BodyNode::Kind::kOperand, .operand = 0},
                   {.kind = BodyNode::Kind::kOperand, .operand = 1},
                   {.literal = factor},
                   {.kind = BodyNode::Kind::kMap, .op = Operator::kMultiply, .children = {0, 1, 2}}};
    kernel.aggregate = Operator::kAdd;
    kernel.output = {0};
    kernel.formats = {kDense};
    derive(kernel);
  }

  KernelArguments arguments() const { return {{&a, &x}, {2, 3}}; }

  Tensor a;
  Tensor x;
  Kernel kernel;
};

void expect_product(const Run& run, double factor) {
  EXPECT_EQ(element_at(run.result, {0}), 13 * factor);
  EXPECT_EQ(element_at(run.result, {1}), 10 * factor);
}

TEST(Run, AKernelOfFewVisitsIsInterpreted) {
  const TemporaryFolder folder;
  const Product product(2);
  const auto small = run(product.kernel, product.arguments(), {.cache = folder.path(), .iterations = 3});
  expect_product(small, 2);
  EXPECT_FALSE(small.compiled);
  EXPECT_EQ(small.why_interpreted, "");
}

TEST(Run, AKernelOfManyVisitsIsCompiledOnce) {
  const TemporaryFolder folder;
  const Product product(3);
  const RunOptions options{.cache = folder.path(), .iterations = 1e12};
  const auto first = run(product.kernel, product.arguments(), options);
  expect_product(first, 3);
  EXPECT_TRUE(first.compiled) << first.why_interpreted;
  EXPECT_GT(first.compile_seconds, 0);
  const auto second = run(product.kernel, product.arguments(), options);
  EXPECT_EQ(second.compile_seconds, 0);
  // It is there, so that fewer visits take it too, but for those that are done before it is found.
  const auto third = run(product.kernel, product.arguments(), {.cache = folder.path(), .iterations = 1e5});
  EXPECT_TRUE(third.compiled);
  const auto fourth = run(product.kernel, product.arguments(), {.cache = folder.path(), .iterations = 3});
  EXPECT_FALSE(fourth.compiled);
}

TEST(Run, WhereNothingCompilesTheInterpreterRunsAndSaysWhy) {
  const TemporaryFolder folder;
  const Variable compiler("JOINSUM_CXX", "no_such_compiler");
  const Product product(4);
  const auto automatic = run(product.kernel, product.arguments(), {.cache = folder.path(), .iterations = 1e12});
  expect_product(automatic, 4);
  EXPECT_FALSE(automatic.compiled);
  EXPECT_NE(automatic.why_interpreted.find("there is no such program"), std::string::npos);
  const RunOptions options{.engine = Engine::kCompiled, .cache = folder.path()};
  EXPECT_NE(error_of([&] { run(product.kernel, product.arguments(), options); }), "no error");
}

TEST(Run, ALibraryWithoutTheFunctionIsNotRun) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/other_compiler";
  // Compiles nothing, whatever the source.
  std::ofstream(path) << "#!/bin/sh\n[ \"$1\" = --version ] && exec c++ --version\n"
                      << "while [ \"$1\" != -o ]; do shift; done\n"
                      << "echo 'int other;' | exec c++ -x c++ -shared -fPIC -o \"$2\" -\n";
  chmod(path.c_str(), S_IRWXU);
  const Variable compiler("JOINSUM_CXX", path.c_str());
  const Product product(6);
  const auto automatic = run(product.kernel, product.arguments(), {.cache = folder.path(), .iterations = 1e12});
  expect_product(automatic, 6);
  EXPECT_FALSE(automatic.compiled);
  EXPECT_NE(automatic.why_interpreted.find("it has no such function"), std::string::npos);
  const RunOptions options{.engine = Engine::kCompiled, .cache = folder.path()};
  EXPECT_NE(error_of([&] { run(product.kernel, product.arguments(), options); }).find("no such function"),
            std::string::npos);
}

TEST(Run, TheSwitchTurnsCompilationOff) {
  const TemporaryFolder folder;
  const Variable jit("JOINSUM_JIT", "0");
  const Product product(5);
  EXPECT_FALSE(run(product.kernel, product.arguments(), {.cache = folder.path(), .iterations = 1e12}).compiled);
  const RunOptions options{.engine = Engine::kCompiled, .cache = folder.path()};
  EXPECT_EQ(error_of([&] { run(product.kernel, product.arguments(), options); }),
            "kernel compiler: it is switched off: JOINSUM_JIT=0");
}

}  // namespace
}  // namespace joinsum::sparse::kernels

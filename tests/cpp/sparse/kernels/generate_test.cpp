#include "sparse/kernels/generate.h"

#include <cstdlib>
#include <filesystem>

#include <gtest/gtest.h>

#include "sparse/kernels/compilation/compiler.h"
#include "sparse/kernels/expectations.h"
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
  for (int i = 0; i < 120; ++i) {
    const DType dtype = element_types()[i % 6];
    cases.push_back(i % 10 == 0 ? random.draw_long(dtype) : random.draw(dtype));
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

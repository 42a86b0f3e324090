#include "kernels/table/kernel.h"

#include <bit>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "base/check.h"

namespace joinsum::kernels::table {

namespace {

template <class Error, class Function>
std::string message_of(Function function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::string parse_error(const std::string& text) {
  return message_of<PlanError>([&] { Kernel::parse(text); });
}

TEST(KernelText, RoundTripsEveryKindOfParameter) {
  const std::vector<std::string> texts{
      "relu",          "scale[0.5]",          "scale[2]",
      "scale[2.0]",    "scale[-1e-08]",       "scale[$rate]",
      "scale[inf]",    "scale[-inf]",         "tile[0, 2]",
      "insert_dim[1]", "contract[ij,jk->ik]", "contract[ij,ij->]",
      "contract[,->]", "cast[bf16]",          "adam_direction[0.001, 0.9, 0.999, 1e-08, $step]"};
  for (const std::string& text : texts) EXPECT_EQ(Kernel::parse(text).text(), text);
}

TEST(KernelText, KernelsMayFollow) {
  for (const char* text : {"add | relu", "contract[ij,jk->ik] | scale[0.5] | relu", "tile[0, 2] | cast[bf16]"}) {
    const Kernel kernel = Kernel::parse(text);
    EXPECT_EQ(kernel.text(), text);
    EXPECT_EQ(kernel, Kernel::parse(kernel.text()));
    EXPECT_NE(kernel.hash(), kernel.first().hash());
  }
  const Kernel add = Kernel::parse("add");
  EXPECT_EQ(add.followed_by(Kernel::parse("relu | negate")).followed_by(Kernel::parse("abs")),
            Kernel::parse("add | relu | negate | abs"));
  EXPECT_EQ(add.followed_by(Kernel::parse("id")), add);
  EXPECT_EQ(Kernel::parse("id").followed_by(Kernel::parse("relu | abs")), Kernel::parse("relu | abs"));
  EXPECT_EQ(Kernel::parse("add | scale[$rate] | scale[$rate] | scale[$step]").scalar_names(),
            (std::vector<std::string>{"rate", "step"}));
}

TEST(KernelText, TellsIntegersFromReals) {
  EXPECT_EQ(Kernel::parse("scale[2]").parameters[0], Parameter(int64_t{2}));
  EXPECT_EQ(Kernel::parse("scale[2.0]").parameters[0], Parameter(2.0));
  EXPECT_EQ(Kernel::parse("scale[1e3]").text(), "scale[1000.0]");
  EXPECT_NE(Kernel::parse("scale[2]"), Kernel::parse("scale[2.0]"));
  EXPECT_EQ(Kernel::parse("scale[+3]").text(), "scale[3]");
}

TEST(KernelText, RoundTripsRandomRealsExactly) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 20000; ++i) {
    const auto value = std::bit_cast<double>(random());
    if (value != value) continue;
    const Kernel kernel{"scale", {value}};
    const Kernel back = Kernel::parse(kernel.text());
    ASSERT_EQ(back, kernel) << kernel.text();
    ASSERT_EQ(back.hash(), kernel.hash());
  }
}

TEST(KernelText, RoundTripsExtremeNumbers) {
  using Limits = std::numeric_limits<double>;
  for (const double value : {Limits::max(), Limits::min(), Limits::denorm_min(), -0.0, 0.0, 1e15, 1e16, 1e17, 1e22,
                             12345678901234567000.0}) {
    const Kernel kernel{"scale", {value}};
    EXPECT_EQ(Kernel::parse(kernel.text()), kernel) << kernel.text();
  }
  for (const int64_t value : {std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()}) {
    const Kernel kernel{"insert_dim", {value}};
    EXPECT_EQ(Kernel::parse(kernel.text()), kernel);
  }
}

TEST(KernelText, ReadsBlanksAndStopsAfterTheKernel) {
  Scanner scanner(" tile [ 0 , 2 ]; rest");
  EXPECT_EQ(Kernel::parse(scanner), (Kernel{"tile", {int64_t{0}, int64_t{2}}}));
  EXPECT_TRUE(scanner.peek(";"));
  EXPECT_EQ(Kernel::parse("contract[ij, jk -> ik]").text(), "contract[ij,jk->ik]");
  EXPECT_EQ(Kernel::parse("scale[\n  $rate  # the rate\n]").name, "scale");
}

TEST(KernelText, ReadsUnknownKernels) {
  EXPECT_EQ(Kernel::parse("mystery[1, 0.5, $x]").parameters.size(), 3u);
  EXPECT_EQ(Kernel::parse("mystery[ij,jk->ik]").label(0), "ij,jk->ik");
  EXPECT_EQ(Kernel::parse("mystery[3, a,b->c]"), (Kernel{"mystery", {int64_t{3}, std::string("a,b->c")}}));
}

TEST(KernelText, NamesWhereReadingFails) {
  EXPECT_EQ(parse_error("scale[]"), "parse: expected a parameter: line=1, column=7, near=`]`");
  EXPECT_EQ(parse_error("scale[1"), "parse: expected `]`: line=1, column=8, near=`end of text`");
  EXPECT_EQ(parse_error("scale[1,]"), "parse: expected a parameter: line=1, column=9, near=`]`");
  EXPECT_EQ(parse_error("scale[1] x"), "parse: expected the end of the kernel: line=1, column=10, near=`x`");
  EXPECT_EQ(parse_error("[1]"), "parse: expected a name: line=1, column=1, near=`[1]`");
}

TEST(KernelParameters, NumbersAreReadFromIntegersRealsAndScalars) {
  const Kernel kernel = Kernel::parse("adam_direction[1, 0.9, 0.999, $eps, $step]");
  const Scalars scalars{{"eps", 1e-8}, {"step", 3}};
  EXPECT_EQ(kernel.number(0, scalars), 1.0);
  EXPECT_EQ(kernel.number(1, scalars), 0.9);
  EXPECT_EQ(kernel.number(4, scalars), 3.0);
  EXPECT_EQ(kernel.scalar_names(), (std::vector<std::string>{"eps", "step"}));
  EXPECT_EQ(Kernel::parse("mystery[$a, $b, $a]").scalar_names(), (std::vector<std::string>{"a", "b"}));
}

TEST(KernelParameters, AnUnboundScalarIsNamed) {
  EXPECT_EQ(message_of<PlanError>([] { Kernel::parse("scale[$rate]").number(0, {{"step", 1}}); }),
            "scale: scalar is not bound: kernel=scale[$rate], scalar=rate, bound=[step]");
}

TEST(KernelParameters, AParameterOfAnotherKindIsRefused) {
  EXPECT_EQ(message_of<KernelError>([] { Kernel::parse("scale[0.5]").integer(0); }),
            "scale: parameter is not an integer: kernel=scale[0.5], index=0");
  EXPECT_EQ(message_of<KernelError>([] { Kernel::parse("scale[0.5]").label(0); }),
            "scale: parameter is not a label: kernel=scale[0.5], index=0");
  EXPECT_EQ(message_of<KernelError>([] { Kernel::parse("cast[f32]").number(0, {}); }),
            "cast: parameter is not a number: kernel=cast[f32], index=0");
  EXPECT_EQ(message_of<KernelError>([] { Kernel::parse("relu").integer(0); }),
            "relu: parameter is not an integer: kernel=relu, index=0");
}

TEST(KernelHash, EqualKernelsHashAlikeAndOthersDiffer) {
  const std::vector<std::string> texts{"relu",    "scale[1]",   "scale[1.0]", "scale[$a]",
                                       "cast[a]", "tile[0, 1]", "tile[1, 0]"};
  for (const std::string& a : texts) {
    for (const std::string& b : texts) EXPECT_EQ(Kernel::parse(a).hash() == Kernel::parse(b).hash(), a == b) << a << b;
  }
  EXPECT_EQ((Kernel{"scale", {0.0}}).hash(), (Kernel{"scale", {-0.0}}).hash());
}

}  // namespace
}  // namespace joinsum::kernels::table

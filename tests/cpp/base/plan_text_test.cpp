#include "base/plan_text.h"

#include <gtest/gtest.h>

#include "tra/text.h"

namespace joinsum {
namespace {

TEST(PlanText, DimsPrintAndReadAsOperatorsDo) {
  EXPECT_EQ(dims_text({}), "");
  EXPECT_EQ(dims_text({0, 2, 11}), "0, 2, 11");
  Scanner scanner("0, 2; rest");
  EXPECT_EQ(parse_dims(scanner), (Dims{0, 2}));
  EXPECT_EQ(scanner.name(), "rest");
  Scanner open("0, 2");
  EXPECT_THROW(parse_dims(open), PlanError);
}

TEST(PlanText, BlanksAreAllWhiteSpace) { EXPECT_EQ(without_blanks(" a\tb\r\n c"), "abc"); }

TEST(PlanText, AMessageGetsTheLineOfItsPlaceOnce) {
  EXPECT_EQ(with_line("wrong", "one\ntwo\nthree", 5), "wrong, line=2");
  EXPECT_EQ(with_line("wrong, line=7", "one\ntwo", 5), "wrong, line=7");
}

TEST(PlanText, NodesAreNumberedPastTheNamesOfInputs) {
  const tra::Plan plan = tra::parse("tra\ninput t0: f32[4]<2>\noutput Z = transform[exp](transform[negate](t0))");
  EXPECT_EQ(tra::print(plan),
            "tra\ninput t0: f32[4]<2>\nt1 = transform[negate](t0): f32[4]<2>\n"
            "t2 = transform[exp](t1): f32[4]<2>\noutput Z = t2\n");
}

TEST(PlanText, EqualPlansShareTheSameNodes) {
  const std::string inputs = "tra\ninput X: f32[4]<2>\n";
  const tra::Plan shared = tra::parse(inputs + "a = transform[exp](X)\noutput Z = join[0; 0; add](a, a)");
  const tra::Plan twice =
      tra::parse(inputs + "a = transform[exp](X)\nb = transform[exp](X)\noutput Z = join[0; 0; add](a, b)");
  EXPECT_TRUE(same_plan(shared, shared));
  EXPECT_FALSE(same_plan(shared, twice));
}

TEST(PlanText, ErrorsNameTheirLine) {
  const auto error_of = [](const std::string& text) -> std::string {
    try {
      tra::parse(text);
    } catch (const PlanError& error) {
      return error.what();
    }
    return "no error";
  };
  const std::string inputs = "tra\ninput X: f32[4]<2>\n";
  EXPECT_NE(error_of(inputs).find("a plan needs an `output` line"), std::string::npos);
  EXPECT_NE(error_of(inputs + "output Z = Y").find("no such input or node so far: name=Y"), std::string::npos);
  EXPECT_NE(error_of(inputs + "X = transform[exp](X)\noutput Z = X").find("name used twice: name=X"),
            std::string::npos);
  EXPECT_NE(error_of(inputs + "output Z = X\noutput Z = X").find("line=4"), std::string::npos);
}

}  // namespace
}  // namespace joinsum

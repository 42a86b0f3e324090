#include "base/scanner.h"

#include <limits>

#include <gtest/gtest.h>

namespace joinsum {
namespace {

template <class Act>
std::string plan_error(const Act& act) {
  try {
    act();
  } catch (const PlanError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Scanner, BlanksAndCommentsStandBetweenTokens) {
  Scanner scanner("  # first\n\ta,\r\n # second\nb # last");
  EXPECT_EQ(scanner.name(), "a");
  EXPECT_TRUE(scanner.accept(","));
  EXPECT_EQ(scanner.name(), "b");
  EXPECT_TRUE(scanner.at_end());
}

TEST(Scanner, AnEmptyTextOrACommentAloneIsAtItsEnd) {
  EXPECT_TRUE(Scanner("").at_end());
  EXPECT_TRUE(Scanner(" \n").at_end());
  EXPECT_TRUE(Scanner("# no line end").at_end());
  EXPECT_FALSE(Scanner("x").at_end());
}

TEST(Scanner, AWordIsTakenWholeAndASignIsTakenAsAPrefix) {
  EXPECT_TRUE(Scanner("or x").peek("or"));
  EXPECT_TRUE(Scanner("or(x)").peek("or"));
  EXPECT_TRUE(Scanner("or").peek("or"));
  EXPECT_FALSE(Scanner("order").peek("or"));
  EXPECT_FALSE(Scanner("or_else").peek("or"));
  EXPECT_FALSE(Scanner("or2").peek("or"));
  EXPECT_FALSE(Scanner("o").peek("or"));
  EXPECT_TRUE(Scanner("<=1").peek("<"));
  EXPECT_TRUE(Scanner("(x").peek("("));
  EXPECT_TRUE(Scanner("x").peek(""));
}

TEST(Scanner, PeekTakesNothingAndAcceptTakesTheToken) {
  Scanner scanner("ab cd");
  EXPECT_TRUE(scanner.peek("ab"));
  EXPECT_EQ(scanner.offset(), 0);
  EXPECT_FALSE(scanner.accept("cd"));
  EXPECT_TRUE(scanner.accept("ab"));
  EXPECT_TRUE(scanner.accept("cd"));
  EXPECT_FALSE(scanner.accept("cd"));
}

TEST(Scanner, SeekGoesBackToAnOffset) {
  Scanner scanner("a b");
  scanner.name();
  const size_t second = scanner.offset();
  EXPECT_EQ(scanner.name(), "b");
  scanner.seek(second);
  EXPECT_EQ(scanner.name(), "b");
}

TEST(Scanner, ANameStartsWithALetterOrUnderscore) {
  EXPECT_EQ(Scanner("a1_b.c rest").name(), "a1_b.c");
  EXPECT_EQ(Scanner("_x").name(), "_x");
  EXPECT_EQ(Scanner("A-b").name(), "A");
  for (const char* text : {"", "1a", "'a", ".a", "-a", "\xc3\xa9"}) {
    EXPECT_FALSE(Scanner(text).peek_name()) << text;
    EXPECT_NE(plan_error([&] { Scanner(text).name(); }).find("expected a name"), std::string::npos) << text;
  }
}

TEST(Scanner, AnIntegerMayCarryASignAndMustFit64Bits) {
  EXPECT_EQ(Scanner("42)").integer(), 42);
  EXPECT_EQ(Scanner("-42").integer(), -42);
  EXPECT_EQ(Scanner("+42").integer(), 42);
  EXPECT_EQ(Scanner("-9223372036854775808").integer(), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(Scanner("9223372036854775807").integer(), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(plan_error([] { Scanner("9223372036854775808").integer(); }),
            "parse: integer does not fit 64 bits: line=1, column=1, near=`9223372036854775808`");
  for (const char* text : {"", "x", "-", "- 1", "--1", "+-1", "+"}) {
    EXPECT_NE(plan_error([&] { Scanner(text).integer(); }).find("expected an integer"), std::string::npos) << text;
  }
}

TEST(Scanner, ANumberIsADecimalInAnyNotation) {
  EXPECT_EQ(Scanner("2").number(), 2.0);
  EXPECT_EQ(Scanner("-2.5]").number(), -2.5);
  EXPECT_EQ(Scanner("+1e3").number(), 1000.0);
  Scanner scanner("1.5e-1, 2");
  EXPECT_EQ(scanner.number(), 0.15);
  EXPECT_TRUE(scanner.accept(","));
  EXPECT_NE(plan_error([] { Scanner("1e999").number(); }), "no error");
  EXPECT_NE(plan_error([] { Scanner(".5").number(); }), "no error");
  EXPECT_NE(plan_error([] { Scanner("nan").number(); }), "no error");
}

TEST(Scanner, IntegersReadsAListThatMayBeEmpty) {
  Scanner scanner("0, 2,-1]");
  EXPECT_EQ(scanner.integers(), (Dims{0, 2, -1}));
  EXPECT_TRUE(scanner.accept("]"));
  EXPECT_EQ(Scanner("]").integers(), Dims{});
  EXPECT_NE(plan_error([] { Scanner("0,]").integers(); }), "no error");
}

TEST(Scanner, RawUntilStopsOutsideNestedBrackets) {
  Scanner scanner(" f(a, [b;c]) , rest");
  EXPECT_EQ(scanner.raw_until(",;"), "f(a, [b;c])");
  EXPECT_TRUE(scanner.accept(","));
  EXPECT_EQ(scanner.raw_until(";"), "rest");
  EXPECT_TRUE(scanner.at_end());
  EXPECT_EQ(Scanner("a b ) c").raw_until(","), "a b");
  EXPECT_EQ(Scanner("").raw_until(","), "");
}

TEST(Scanner, ExpectRaisesAtLineAndColumn) {
  EXPECT_EQ(plan_error([] {
              Scanner scanner("a\n  b\n");
              scanner.expect("a");
              scanner.expect("c");
            }),
            "parse: expected `c`: line=2, column=3, near=`b`");
  EXPECT_EQ(plan_error([] { Scanner("").expect("c"); }), "parse: expected `c`: line=1, column=1, near=`end of text`");
  EXPECT_EQ(plan_error([] { Scanner("\x01\xff").expect("c"); }), "parse: expected `c`: line=1, column=1, near=`\?\?`");
}

}  // namespace
}  // namespace joinsum

#include <random>

#include <gtest/gtest.h>

#include "relation/key_expression.h"
#include "relation/random_key_expressions.h"

namespace joinsum::relation {
namespace {

TEST(KeyParser, OperatorsBindAsInPython) {
  EXPECT_EQ(value_of("1 + 2 * 3"), 7);
  EXPECT_EQ(value_of("10 - 3 - 2"), 5);
  EXPECT_EQ(value_of("7 // 2 * 2"), 6);
  EXPECT_EQ(value_of("-3 // 2"), -2);
  EXPECT_EQ(value_of("-k0 // 2", {3}), -2);
  EXPECT_EQ(value_of("2 * -3"), -6);
  EXPECT_EQ(value_of("1 -3"), -2);
  EXPECT_EQ(value_of("not 1 < 2 or true"), 1);
  EXPECT_EQ(value_of("not 1 < 2 and false"), 0);
  EXPECT_EQ(value_of("true or true and false"), 1);
  EXPECT_EQ(value_of("1 + 1 == 2 and not 3 != 3"), 1);
}

TEST(KeyParser, PrintsTheFewestParentheses) {
  for (const char* text : {"k0",
                           "m",
                           "true",
                           "-3",
                           "-(3)",
                           "--3",
                           "-k0",
                           "--k0",
                           "-(k0 + 1)",
                           "-lookup(owner, k0)",
                           "-9223372036854775808",
                           "k0 + 1 + 2",
                           "k0 + (1 + 2)",
                           "k0 - (1 - 2)",
                           "k0 - -3",
                           "k0 - -(3)",
                           "(k0 + 1) * 2",
                           "k0 + 1 * 2",
                           "k0 * (1 * 2)",
                           "k0 // 2 % 3",
                           "-k0 // 2",
                           "-(k0 // 2)",
                           "k0 + 1 < k1 * 2",
                           "not k0 < 1",
                           "not not true",
                           "not (true and false)",
                           "not true and false",
                           "true and not false",
                           "true or true and false",
                           "(true or true) and false",
                           "true and (true and false)",
                           "k0 < 1 and k1 >= 2 or not k2 == m",
                           "lookup(owner, (k0 + 1) * 2)",
                           "lookup(owner, lookup(or, k0))"}) {
    EXPECT_EQ(parse(text).text(), text);
  }
  EXPECT_EQ(parse("((k0) + ((1))) # sum\n + (2*k1)").text(), "k0 + 1 + 2 * k1");
}

TEST(KeyParser, AMinusBeforeANumberIsPartOfIt) {
  EXPECT_EQ(parse("-3"), number(-3));
  EXPECT_EQ(parse("- 3"), number(-3));
  EXPECT_EQ(parse("-(3)"), negated(number(3)));
  EXPECT_EQ(parse("--3"), negated(number(-3)));
  EXPECT_EQ(negated(number(3)).text(), "-(3)");
  EXPECT_EQ(number(kLowest), parse(number(kLowest).text()));
}

TEST(KeyParser, ParseErrorsNameThePlace) {
  EXPECT_EQ(parse_error("k0 +\n  foo"), "parse: a key expression has no name `foo`: line=2, column=3, near=`foo`");
  EXPECT_EQ(parse_error("k0 < k1 < k2"), "parse: comparisons do not chain: line=1, column=9, near=`< k2`");
  EXPECT_EQ(parse_error("k0 k1"), "parse: expected an operator or the end: line=1, column=4, near=`k1`");
  EXPECT_EQ(parse_error("true and k0"),
            "parse: key expression: `and` takes booleans: operand=k0: line=1, column=6, near=`and k0`");
  EXPECT_EQ(parse_error("lookup(place, k0)"),
            "parse: no such lookup table: name=place, tables=[or, owner]: line=1, column=8, near=`place, k0)`");
  for (const char* text : {"",
                           "(",
                           "(k0",
                           "k0)",
                           "k0 +",
                           "+3",
                           "k0 + +3",
                           "k",
                           "k0.5",
                           "k99999999999999999999",
                           "9223372036854775808",
                           "k9223372036854775807",
                           "k0 / 2",
                           "k0 = 1",
                           "k0 + not true",
                           "lookup",
                           "lookup(owner)",
                           "lookup(owner k0)",
                           "lookup(3, k0)",
                           "and",
                           "not",
                           "true and",
                           "3k0"}) {
    EXPECT_NE(parse_error(text).find("line=1"), std::string::npos) << text << ": " << parse_error(text);
  }
}

TEST(KeyParser, ParseLeavesWhatFollowsTheExpression) {
  Scanner scanner("k0 + 1; rest");
  EXPECT_EQ(KeyExpression::parse(scanner, {}).text(), "k0 + 1");
  EXPECT_TRUE(scanner.accept(";"));
}

TEST(KeyParser, WhatIsBuiltPrintsAndParsesBackWithTheSameValueAndHash) {
  Generator generator(20260101);
  int64_t with_value = 0;
  for (int i = 0; i < 6000; ++i) {
    const Generated drawn = generator.any(1 + i % 6);
    const KeyExpression& built = drawn.expression;
    const KeyExpression parsed = parse(built.text());
    ASSERT_TRUE(parsed == built) << built.text();
    ASSERT_EQ(parsed.hash(), built.hash()) << built.text();
    ASSERT_EQ(parsed.text(), built.text());
    for (int sample = 0; sample < 4; ++sample) {
      const Key key = generator.key();
      const std::optional<int64_t> expected = drawn.naive(key, sample);
      ASSERT_EQ(value_or_none(built, key, sample), expected) << built.text() << " at " << key_text(key);
      ASSERT_EQ(value_or_none(parsed, key, sample), expected) << built.text() << " at " << key_text(key);
      with_value += expected.has_value() ? 1 : 0;
    }
  }
  EXPECT_GT(with_value, 6000);
}

TEST(KeyParser, NoPrintedParenthesisCanBeLeftOut) {
  Generator generator(7);
  for (int i = 0; i < 1000; ++i) {
    const KeyExpression built = generator.any(4).expression;
    const std::string text = built.text();
    std::vector<size_t> open;
    for (size_t at = 0; at < text.size(); ++at) {
      if (text[at] == '(') open.push_back(at);
      if (text[at] != ')') continue;
      const size_t begin = open.back();
      open.pop_back();
      if (begin > 0 && text[begin - 1] == 'p') continue;  // of a lookup
      std::string fewer = text;
      fewer[begin] = fewer[at] = ' ';
      const bool still_the_same = parse_error(fewer) == "no error" && parse(fewer) == built;
      ASSERT_FALSE(still_the_same) << text << " and " << fewer;
    }
  }
}

TEST(KeyParser, BracketsNestAsDeepInABuiltExpressionAsInAParsedOne) {
  KeyExpression right = k(0);
  KeyExpression minus = k(0);
  KeyExpression looked_up = k(0);
  KeyExpression inverted = parse("true");
  for (int i = 0; i < 200; ++i) {
    right = sum(number(1), right);
    minus = negated(minus);
    looked_up = KeyExpression::lookup(tables().at("owner"), looked_up);
    inverted = KeyExpression::unary(KeyOperator::kNot, inverted);
  }
  right = sum(number(1), right);
  for (const KeyExpression& deepest : {right, minus, looked_up, inverted}) EXPECT_EQ(parse(deepest.text()), deepest);
  EXPECT_NE(plan_error([&] { sum(number(1), right); }).find("nested too deeply"), std::string::npos);
  EXPECT_NE(plan_error([&] { negated(minus); }).find("nested too deeply"), std::string::npos);
  const std::string brackets = std::string(201, '(') + "k0" + std::string(201, ')');
  EXPECT_NE(parse_error(brackets).find("column=202"), std::string::npos) << parse_error(brackets);
  EXPECT_EQ(parse(brackets.substr(1, brackets.size() - 2)), k(0));
}

TEST(KeyParser, AMillionOpenBracketsRaiseInsteadOfCrashing) {
  for (const char* token : {"(", "-", "not ", "lookup(owner, ", "k0 + (", "- (", "not ("}) {
    std::string text;
    for (int i = 0; i < 100'000; ++i) text += token;
    EXPECT_NE(parse_error(text).find("nested too deeply"), std::string::npos) << token;
  }
}

TEST(KeyParser, GarbageParsesOrRaisesAtAPlace) {
  const std::vector<std::string> tokens{"k0",
                                        "k1",
                                        "m",
                                        "3",
                                        "-2",
                                        "(",
                                        ")",
                                        ",",
                                        "+",
                                        "-",
                                        "*",
                                        "//",
                                        "/",
                                        "%",
                                        "<",
                                        "<=",
                                        "==",
                                        "!=",
                                        "=",
                                        "not ",
                                        "or ",
                                        "#",
                                        "\n",
                                        "and",
                                        " and",
                                        "true",
                                        "lookup",
                                        "owner",
                                        "k",
                                        "'",
                                        " ",
                                        ".",
                                        "]",
                                        "\xff",
                                        "99999999999999999999",
                                        "lookup(owner, ",
                                        "\t"};
  std::mt19937_64 random(3);
  int64_t accepted = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string text = i % 2 == 0 ? "" : "(";
    const uint64_t length = 1 + random() % 9;
    for (uint64_t t = 0; t < length; ++t) text += tokens[random() % tokens.size()];
    for (const std::string& error : {parse_error(text), plan_error([&] { parse_map(text); })}) {
      if (error == "no error") {
        ++accepted;
      } else {
        ASSERT_NE(error.find("line="), std::string::npos) << text << ": " << error;
      }
    }
  }
  EXPECT_GT(accepted, 200);
}

}  // namespace
}  // namespace joinsum::relation

#include "relation/key_expression.h"

#include <gtest/gtest.h>

#include "relation/random_key_expressions.h"

namespace joinsum::relation {
namespace {

TEST(KeyExpression, DivisionAndModuloRoundDownAsInPython) {
  EXPECT_EQ(value_of("7 // 2"), 3);
  EXPECT_EQ(value_of("-7 // 2"), -4);
  EXPECT_EQ(value_of("7 // -2"), -4);
  EXPECT_EQ(value_of("-7 // -2"), 3);
  EXPECT_EQ(value_of("7 % 3"), 1);
  EXPECT_EQ(value_of("-7 % 3"), 2);
  EXPECT_EQ(value_of("7 % -3"), -2);
  EXPECT_EQ(value_of("-7 % -3"), -1);
  EXPECT_EQ(value_of("-6 % 3"), 0);
  EXPECT_EQ(value_of("k0 % -1", {kLowest}), 0);
}

TEST(KeyExpression, ReadsKeyOutputNumberAndTables) {
  EXPECT_EQ(value_of("k0 * 10 + k2", {4, 9, 2}), 42);
  EXPECT_EQ(value_of("k0 + m", {4}, 3), 7);
  EXPECT_EQ(value_of("lookup(owner, k0 + 1)", {2}), 5);
  EXPECT_EQ(value_of("lookup(or, 0)"), -7);
}

TEST(KeyExpression, AndAndOrStopAtTheFirstDecidingOperand) {
  EXPECT_EQ(value_of("k0 != 0 and 6 // k0 == 2", {0}), 0);
  EXPECT_EQ(value_of("k0 == 0 or 6 // k0 == 2", {0}), 1);
  EXPECT_EQ(value_of("k0 != 0 and 6 // k0 == 2", {3}), 1);
  EXPECT_EQ(evaluation_error("6 // k0 == 2 or k0 == 0", {0}),
            "key expression: division by zero: expression=6 // k0, key=<0>");
}

TEST(KeyExpression, EvaluationErrorsNameTheExpressionAndTheKey) {
  EXPECT_EQ(evaluation_error("1 + k0 // k1", {3, 0}),
            "key expression: division by zero: expression=k0 // k1, key=<3,0>");
  EXPECT_EQ(evaluation_error("k0 % m", {3}, 0), "key expression: division by zero: expression=k0 % m, key=<3>, m=0");
  EXPECT_EQ(evaluation_error("k0 + k1", {kHighest, 1}),
            "key expression: result exceeds 64 bits: expression=k0 + k1, key=<9223372036854775807,1>");
  EXPECT_EQ(evaluation_error("lookup(owner, k0)", {4}),
            "key expression: index outside the lookup table: expression=lookup(owner, k0), index=4, table size=4, "
            "key=<4>");
  EXPECT_EQ(evaluation_error("k0 + k2", {4, 1}), "key expression: component outside the key: expression=k2, key=<4,1>");
}

TEST(KeyExpression, EveryOverflowAndNegativeIndexRaises) {
  const Key key{kLowest, kHighest};
  for (const char* text : {"k0 - 1", "k1 + 1", "k1 * 2", "k0 * -1", "-k0", "k0 // -1", "lookup(owner, -1)"}) {
    EXPECT_NE(evaluation_error(text, key), "no error") << text;
  }
  EXPECT_EQ(value_of("-k1", key), -kHighest);
  EXPECT_EQ(value_of("k0 // 1", key), kLowest);
}

TEST(KeyExpression, OperandsOfTheWrongKindAreRejected) {
  EXPECT_EQ(plan_error([] { sum(k(0), KeyExpression::truth(true)); }),
            "key expression: `+` takes integers: operand=true");
  EXPECT_EQ(plan_error([] { KeyExpression::binary(KeyOperator::kAnd, k(0), KeyExpression::truth(true)); }),
            "key expression: `and` takes booleans: operand=k0");
  for (const char* text : {"not k0", "-true", "true + 1", "true == false", "(1 < 2) != (2 < 3)", "1 or true",
                           "(1 < 2) < 3", "lookup(owner, true)", "k0 + (not true)"}) {
    EXPECT_NE(parse_error(text).find("takes"), std::string::npos) << text << ": " << parse_error(text);
    EXPECT_NE(parse_error(text).find("line=1"), std::string::npos) << text;
  }
}

TEST(KeyExpression, AnOperatorOfAnotherOperandCountIsRejected) {
  EXPECT_NE(plan_error([] { KeyExpression::unary(KeyOperator::kAdd, k(0)); }), "no error");
  EXPECT_NE(plan_error([] { KeyExpression::unary(KeyOperator::kTrue, k(0)); }), "no error");
  EXPECT_NE(plan_error([] { KeyExpression::binary(KeyOperator::kNegate, k(0), k(1)); }), "no error");
  EXPECT_NE(plan_error([] { KeyExpression::binary(KeyOperator::kLookup, k(0), k(1)); }), "no error");
  EXPECT_NE(plan_error([] { k(-1); }), "no error");
  EXPECT_NE(plan_error([] { k(kHighest); }), "no error");
}

TEST(KeyExpression, EqualExactlyWhenPrintedAlike) {
  Generator generator(11);
  std::vector<KeyExpression> drawn;
  for (int i = 0; i < 300; ++i) drawn.push_back(generator.any(2).expression);
  for (const KeyExpression& left : drawn) {
    for (const KeyExpression& right : drawn) {
      ASSERT_EQ(left == right, left.text() == right.text());
      ASSERT_EQ(left == right, left.hash() == right.hash()) << left.text() << " and " << right.text();
    }
  }
}

TEST(KeyExpression, HashIsTheSameOnEveryMachineAndRun) {
  EXPECT_EQ(parse("lookup(owner, k0 // 4) + m").hash(), 5456277704907316644ULL);
  EXPECT_EQ(parse_map("(k1, k0)").hash(), 1875036537567897948ULL);
}

TEST(KeyExpression, TablesOfOneNameAreEqualWhateverTheyHold) {
  const KeyExpression one = KeyExpression::lookup(table("t", {1, 2}), k(0));
  const KeyExpression other = KeyExpression::lookup(table("t", {3}), k(0));
  EXPECT_EQ(one, other);
  EXPECT_EQ(one.hash(), other.hash());
  EXPECT_FALSE(one == KeyExpression::lookup(table("u", {1, 2}), k(0)));
}

TEST(KeyExpression, ATableNeedsANameThatParses) {
  for (const char* name : {"", " t", "t ", "3t", "a b", "t)", "#t"}) {
    EXPECT_NE(plan_error([&] { KeyExpression::lookup(table(name, {1}), k(0)); }), "no error") << name;
  }
  EXPECT_NE(plan_error([] { KeyExpression::lookup(nullptr, k(0)); }), "no error");
  EXPECT_NE(plan_error([] { KeyExpression::parse("lookup(t, 0)", {{"t", nullptr}}); }), "no error");
  EXPECT_NE(plan_error([] { KeyExpression::parse("lookup(t, 0)", {{"t", table("u", {})}}); }), "no error");
}

TEST(KeyExpression, TellsWhatItReads) {
  const KeyExpression expression = parse("k3 + k1 * lookup(owner, k3) + m");
  EXPECT_EQ(expression.components(), (Dims{1, 3}));
  EXPECT_EQ(expression.arity(), 4);
  EXPECT_TRUE(expression.reads_output());
  EXPECT_FALSE(expression.is_boolean());
  EXPECT_TRUE(parse("k0 < 1").is_boolean());
  EXPECT_TRUE(parse("true").is_boolean());
  EXPECT_EQ(parse("5").arity(), 0);
  EXPECT_EQ(parse("5").value(), 5);
  EXPECT_EQ(parse("k7").value(), 7);
  EXPECT_THROW(parse("m").value(), InternalError);
}

TEST(KeyExpression, SubstituteComposesWithTheInnerFunctions) {
  EXPECT_EQ(parse("k0 * k1 + m").substitute({parse("k1 + 1"), parse("-k0")}).text(), "(k1 + 1) * -k0 + m");
  Generator generator(5);
  for (int i = 0; i < 1000; ++i) {
    const KeyExpression outer = generator.any(3).expression;
    const std::vector<KeyExpression> inner{generator.integer(1).expression, generator.integer(1).expression,
                                           generator.integer(1).expression};
    const Key key = generator.key();
    Key middle;
    for (const KeyExpression& component : inner) {
      if (const auto value = value_or_none(component, key, 2)) middle.push_back(*value);
    }
    if (middle.size() < 3) continue;
    ASSERT_EQ(value_or_none(outer.substitute(inner), key, 2), value_or_none(outer, middle, 2)) << outer.text();
  }
}

TEST(KeyExpression, SubstituteNeedsAnIntegerForEveryComponentRead) {
  EXPECT_EQ(plan_error([] { parse("k0 + k2").substitute({k(0), k(1)}); }),
            "key expression: nothing to substitute: expression=k2, components=2");
  EXPECT_NE(plan_error([] { parse("k0").substitute({parse("true")}); }), "no error");
  EXPECT_EQ(parse("1 + m").substitute({}), parse("1 + m"));
}

TEST(KeyExpression, ADeepExpressionIsRejectedAndTheDeepestAcceptedOneWorks) {
  KeyExpression chain = k(0);
  for (int depth = 2; depth <= 1000; ++depth) chain = sum(chain, number(1));
  EXPECT_EQ(chain.evaluate({5}), 1004);
  EXPECT_EQ(parse(chain.text()), chain);
  EXPECT_EQ(chain.substitute({k(3)}).components(), (Dims{3}));
  EXPECT_NE(plan_error([&] { sum(chain, number(1)); }).find("nested too deeply: depth=1001"), std::string::npos);
  EXPECT_NE(parse_error(chain.text() + " + 1").find("nested too deeply: depth=1001"), std::string::npos);
  EXPECT_NE(parse_error(chain.text() + " + 1").find("line=1"), std::string::npos);
}

TEST(KeyExpression, ASharedOperandCannotMakeAnExpressionOfExponentialLength) {
  KeyExpression doubled = k(0);
  for (int i = 0; i < 15; ++i) doubled = sum(doubled, doubled);
  EXPECT_EQ(doubled.evaluate({1}), 1 << 15);
  EXPECT_NE(plan_error([&] { sum(doubled, sum(doubled, doubled)); }).find("too long"), std::string::npos);
}

}  // namespace
}  // namespace joinsum::relation

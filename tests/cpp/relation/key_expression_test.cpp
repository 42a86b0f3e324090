#include "relation/key_expression.h"

#include <functional>
#include <limits>
#include <random>

#include <gtest/gtest.h>

namespace joinsum::relation {
namespace {

constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();
constexpr int64_t kHighest = std::numeric_limits<int64_t>::max();

std::shared_ptr<const LookupTable> table(const std::string& name, std::vector<int64_t> values) {
  return std::make_shared<const LookupTable>(LookupTable{name, std::move(values)});
}

const LookupTables& tables() {
  static const LookupTables all{{"owner", table("owner", {2, 0, 1, 5})}, {"or", table("or", {-7, 7})}};
  return all;
}

KeyExpression parse(const std::string& text) { return KeyExpression::parse(text, tables()); }
KeyMap parse_map(const std::string& text) { return KeyMap::parse(text, tables()); }
int64_t value_of(const std::string& text, const Key& key = {}, int64_t output = 0) {
  return parse(text).evaluate(key, output);
}
KeyExpression number(int64_t value) { return KeyExpression::constant(value); }
KeyExpression k(int64_t dim) { return KeyExpression::component(dim); }
KeyExpression negated(const KeyExpression& operand) { return KeyExpression::unary(KeyOperator::kNegate, operand); }
KeyExpression sum(const KeyExpression& left, const KeyExpression& right) {
  return KeyExpression::binary(KeyOperator::kAdd, left, right);
}

template <class Act>
std::string plan_error(const Act& act) {
  try {
    act();
  } catch (const PlanError& error) {
    return error.what();
  }
  return "no error";
}

std::string parse_error(const std::string& text) {
  return plan_error([&] { parse(text); });
}

std::string evaluation_error(const std::string& text, const Key& key, int64_t output = 0) {
  const KeyExpression expression = parse(text);
  return plan_error([&] { expression.evaluate(key, output); });
}

// A value by the mathematics, in a width that the operations below cannot overflow; none where there is no value.
__extension__ typedef __int128 Wide;
using Naive = std::function<std::optional<int64_t>(const Key&, int64_t)>;

struct Generated {
  KeyExpression expression;
  Naive naive;
};

std::optional<int64_t> narrow(Wide value) {
  if (value < kLowest || value > kHighest) return std::nullopt;
  return static_cast<int64_t>(value);
}

std::optional<Wide> naive_floor(Wide a, Wide b) {
  if (b == 0) return std::nullopt;
  Wide quotient = a / b;
  while (b > 0 ? quotient * b > a : quotient * b < a) --quotient;
  return quotient;
}

std::optional<int64_t> naive_binary(KeyOperator op, Wide a, Wide b) {
  const std::optional<Wide> floor = naive_floor(a, b);
  switch (op) {
    case KeyOperator::kAdd:
      return narrow(a + b);
    case KeyOperator::kSubtract:
      return narrow(a - b);
    case KeyOperator::kMultiply:
      return narrow(a * b);
    case KeyOperator::kDivide:
      return floor ? narrow(*floor) : std::nullopt;
    case KeyOperator::kModulo:
      return floor ? narrow(a - *floor * b) : std::nullopt;
    case KeyOperator::kEqual:
      return a == b;
    case KeyOperator::kNotEqual:
      return a != b;
    case KeyOperator::kLess:
      return a < b;
    case KeyOperator::kLessEqual:
      return a <= b;
    case KeyOperator::kGreater:
      return a > b;
    case KeyOperator::kGreaterEqual:
      return a >= b;
    default:
      return std::nullopt;
  }
}

/// Draws expressions together with their value by an independent reading.
class Generator {
 public:
  explicit Generator(uint64_t seed) : random_(seed) {}

  int64_t below(int64_t limit) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(limit)); }
  Generated any(int64_t depth) { return below(3) == 0 ? boolean(depth) : integer(depth); }
  Key key() { return {below(5), below(5), below(5)}; }

  Generated integer(int64_t depth) {
    if (depth == 0 || below(8) == 0) return integer_leaf();
    if (below(8) == 0) return lookup(depth);
    if (below(6) == 0) {
      const Generated a = integer(depth - 1);
      return {negated(a.expression), [a](const Key& key, int64_t m) -> std::optional<int64_t> {
                const auto value = a.naive(key, m);
                return value ? narrow(-Wide{*value}) : std::nullopt;
              }};
    }
    constexpr KeyOperator kOps[] = {KeyOperator::kAdd, KeyOperator::kSubtract, KeyOperator::kMultiply,
                                    KeyOperator::kDivide, KeyOperator::kModulo};
    return on_integers(kOps[below(5)], depth);
  }

  Generated boolean(int64_t depth) {
    if (depth == 0 || below(8) == 0) {
      const bool truth = below(2) == 1;
      return {KeyExpression::truth(truth), [truth](const Key&, int64_t) { return std::optional<int64_t>(truth); }};
    }
    if (below(5) == 0) {
      const Generated a = boolean(depth - 1);
      return {KeyExpression::unary(KeyOperator::kNot, a.expression),
              [a](const Key& key, int64_t m) -> std::optional<int64_t> {
                const auto value = a.naive(key, m);
                return value ? std::optional<int64_t>(1 - *value) : std::nullopt;
              }};
    }
    if (below(2) == 0) return on_booleans(below(2) == 0, depth);
    constexpr KeyOperator kOps[] = {KeyOperator::kEqual,     KeyOperator::kNotEqual, KeyOperator::kLess,
                                    KeyOperator::kLessEqual, KeyOperator::kGreater,  KeyOperator::kGreaterEqual};
    return on_integers(kOps[below(6)], depth);
  }

 private:
  Generated integer_leaf() {
    if (below(6) == 0) return {KeyExpression::output(), [](const Key&, int64_t m) { return std::optional(m); }};
    if (below(2) == 0) {
      const int64_t dim = below(3);
      return {k(dim), [dim](const Key& key, int64_t) { return std::optional(key[dim]); }};
    }
    int64_t value = below(9) - 4;
    if (below(12) == 0) value = below(2) == 0 ? kLowest : kHighest;
    return {number(value), [value](const Key&, int64_t) { return std::optional(value); }};
  }

  Generated lookup(int64_t depth) {
    const Generated index = integer(depth - 1);
    return {KeyExpression::lookup(tables().at("owner"), index.expression),
            [index](const Key& key, int64_t m) -> std::optional<int64_t> {
              const auto at = index.naive(key, m);
              if (!at || *at < 0 || *at > 3) return std::nullopt;
              return *at == 0 ? 2 : *at == 1 ? 0 : *at == 2 ? 1 : 5;
            }};
  }

  Generated on_integers(KeyOperator op, int64_t depth) {
    const Generated a = integer(depth - 1);
    const Generated b = integer(below(depth));
    return {KeyExpression::binary(op, a.expression, b.expression),
            [op, a, b](const Key& key, int64_t m) -> std::optional<int64_t> {
              const auto left = a.naive(key, m);
              const auto right = b.naive(key, m);
              return left && right ? naive_binary(op, *left, *right) : std::nullopt;
            }};
  }

  Generated on_booleans(bool both, int64_t depth) {
    const Generated a = boolean(below(depth));
    const Generated b = boolean(depth - 1);
    return {KeyExpression::binary(both ? KeyOperator::kAnd : KeyOperator::kOr, a.expression, b.expression),
            [both, a, b](const Key& key, int64_t m) -> std::optional<int64_t> {
              const auto left = a.naive(key, m);
              if (!left || *left == (both ? 0 : 1)) return left;
              return b.naive(key, m);
            }};
  }

  std::mt19937_64 random_;
};

std::optional<int64_t> value_or_none(const KeyExpression& expression, const Key& key, int64_t m) {
  try {
    return expression.evaluate(key, m);
  } catch (const PlanError&) {
    return std::nullopt;
  }
}

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

TEST(KeyExpression, OperatorsBindAsInPython) {
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

TEST(KeyExpression, PrintsTheFewestParentheses) {
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

TEST(KeyExpression, AMinusBeforeANumberIsPartOfIt) {
  EXPECT_EQ(parse("-3"), number(-3));
  EXPECT_EQ(parse("- 3"), number(-3));
  EXPECT_EQ(parse("-(3)"), negated(number(3)));
  EXPECT_EQ(parse("--3"), negated(number(-3)));
  EXPECT_EQ(negated(number(3)).text(), "-(3)");
  EXPECT_EQ(number(kLowest), parse(number(kLowest).text()));
}

TEST(KeyExpression, ParseErrorsNameThePlace) {
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

TEST(KeyExpression, ParseLeavesWhatFollowsTheExpression) {
  Scanner scanner("k0 + 1; rest");
  EXPECT_EQ(KeyExpression::parse(scanner, {}).text(), "k0 + 1");
  EXPECT_TRUE(scanner.accept(";"));
}

TEST(KeyExpression, WhatIsBuiltPrintsAndParsesBackWithTheSameValueAndHash) {
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

TEST(KeyExpression, NoPrintedParenthesisCanBeLeftOut) {
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

TEST(KeyExpression, BracketsNestAsDeepInABuiltExpressionAsInAParsedOne) {
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

TEST(KeyExpression, AMillionOpenBracketsRaiseInsteadOfCrashing) {
  for (const char* token : {"(", "-", "not ", "lookup(owner, ", "k0 + (", "- (", "not ("}) {
    std::string text;
    for (int i = 0; i < 100'000; ++i) text += token;
    EXPECT_NE(parse_error(text).find("nested too deeply"), std::string::npos) << token;
  }
}

TEST(KeyExpression, ASharedOperandCannotMakeAnExpressionOfExponentialLength) {
  KeyExpression doubled = k(0);
  for (int i = 0; i < 15; ++i) doubled = sum(doubled, doubled);
  EXPECT_EQ(doubled.evaluate({1}), 1 << 15);
  EXPECT_NE(plan_error([&] { sum(doubled, sum(doubled, doubled)); }).find("too long"), std::string::npos);
}

TEST(KeyExpression, GarbageParsesOrRaisesAtAPlace) {
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

TEST(KeyMap, PrintsAsAListInParentheses) {
  for (const char* text : {"()", "(k0)", "(k1, k0)", "((k0 + 1) * 2, -3, lookup(owner, k2), m)"}) {
    EXPECT_EQ(parse_map(text).text(), text);
    EXPECT_EQ(parse_map(text), parse_map(parse_map(text).text()));
  }
  EXPECT_EQ(parse_map(" ( k1 ,\n k0 ) ").text(), "(k1, k0)");
  EXPECT_EQ(KeyMap().text(), "()");
}

TEST(KeyMap, ParseErrorsNameThePlace) {
  EXPECT_EQ(plan_error([] { parse_map("(k0, k1 < 2)"); }),
            "parse: key map: a component must be an integer: component=k1 < 2: line=1, column=6, near=`k1 < 2)`");
  for (const char* text : {"", "k0", "(", "(k0", "(k0,)", "(,)", "(k0) k1", "(k0; k1)"}) {
    EXPECT_NE(plan_error([&] { parse_map(text); }).find("line=1"), std::string::npos) << text;
  }
}

TEST(KeyMap, EvaluatesEachComponent) {
  EXPECT_EQ(parse_map("(k1, k0 // 2, m)").evaluate({7, 5}, 3), (Key{5, 3, 3}));
  EXPECT_EQ(parse_map("()").evaluate({7, 5}), Key{});
}

TEST(KeyMap, ANegativeComponentRaisesAndNamesTheKey) {
  EXPECT_EQ(plan_error([] { parse_map("(k0, k0 - 5)").evaluate({3}); }),
            "key map: negative component: component=k0 - 5, value=-2, key=<3>");
  EXPECT_EQ(plan_error([] { parse_map("(k0 - m)").evaluate({3}, 4); }),
            "key map: negative component: component=k0 - m, value=-1, key=<3>, m=4");
}

TEST(KeyMap, ABooleanComponentIsRejected) {
  EXPECT_EQ(plan_error([] { KeyMap({k(0), parse("k0 < 1")}); }),
            "key map: a component must be an integer: component=k0 < 1");
}

TEST(KeyMap, IsTheIdentityOnlyWhenItCopiesEveryDimInPlace) {
  EXPECT_TRUE(KeyMap::identity(3).is_identity(3));
  EXPECT_TRUE(parse_map("(k0, k1)").is_identity(2));
  EXPECT_TRUE(KeyMap().is_identity(0));
  EXPECT_FALSE(parse_map("(k0, k1)").is_identity(3));
  EXPECT_FALSE(parse_map("(k0, k1)").is_identity(1));
  EXPECT_FALSE(parse_map("(k1, k0)").is_identity(2));
  EXPECT_FALSE(parse_map("(k0 + 0)").is_identity(1));
}

TEST(KeyMap, TellsWhatItReadsAndCopies) {
  const KeyMap map = parse_map("(k2, k0 + 1, k0, m)");
  EXPECT_EQ(map.copied_dims(), (Dims{2, -1, 0, -1}));
  EXPECT_EQ(map.input_arity(), 3);
  EXPECT_EQ(map.output_arity(), 4);
  EXPECT_TRUE(map.reads_output());
  EXPECT_FALSE(KeyMap::projection({2, 0}).reads_output());
  EXPECT_EQ(KeyMap::projection({2, 0}).text(), "(k2, k0)");
  EXPECT_EQ(KeyMap().input_arity(), 0);
}

TEST(KeyMap, EqualMapsHashAlikeAndOrderMatters) {
  EXPECT_EQ(parse_map("(k1, k0)"), KeyMap::projection({1, 0}));
  EXPECT_EQ(parse_map("(k1, k0)").hash(), KeyMap::projection({1, 0}).hash());
  EXPECT_FALSE(parse_map("(k1, k0)") == parse_map("(k0, k1)"));
  EXPECT_NE(parse_map("(k1, k0)").hash(), parse_map("(k0, k1)").hash());
  EXPECT_NE(parse_map("()").hash(), parse_map("(k0)").hash());
}

}  // namespace
}  // namespace joinsum::relation

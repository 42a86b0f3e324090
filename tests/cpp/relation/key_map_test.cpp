#include <gtest/gtest.h>

#include "relation/key_expression.h"
#include "relation/key_samples.h"

namespace joinsum::relation {
namespace {

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

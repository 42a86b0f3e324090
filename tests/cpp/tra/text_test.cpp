#include "tra/text.h"

#include <gtest/gtest.h>

#include "random_plans.h"

namespace joinsum::tra {
namespace {

std::string parse_error(const std::string& text, const relation::LookupTables& tables = {}) {
  try {
    parse(text, tables);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(PlanText, PrintsOneLinePerNodeInputsFirst) {
  const NodePtr x = make_input("X", RelationType::parse("f32[100,50]<4,2>"));
  const NodePtr w = make_input("W", RelationType::parse("f32[50,60]<2,3>"));
  const NodePtr product = make(Join{{1}, {0}, Kernel::parse("matmul")}, {x, w});
  const NodePtr sum = make(Aggregate{{0, 2}, Kernel::parse("add")}, {product});
  const NodePtr next = make(Transform{Kernel::parse("scale[0.5]")}, {w});
  EXPECT_EQ(print(Plan::make({{"Z", sum, {}}, {"W", next, "W"}})),
            "tra\n"
            "input X: f32[100,50]<4,2>\n"
            "input W: f32[50,60]<2,3>\n"
            "t0 = join[1; 0; matmul](X, W): f32[100@0,60@2]<4,2,3>\n"
            "t1 = aggregate[0, 2; add](t0): f32[100,60]<4,3>\n"
            "t2 = transform[scale[0.5]](W): f32[50,60]<2,3>\n"
            "output Z = t1\n"
            "output W -> W = t2\n");
}

TEST(PlanText, PrintsEveryOperator) {
  const std::string text =
      "tra\n"
      "input X: f32[4@0{0,2,2,4}]<3> keys{<0>,<0>,<2>}\n"
      "input Y: f32[4,4]<2>\n"
      "t0 = filter[not k0 == 1](X): f32[4@0{0,2,2,4}]<3> hole<1> duplicate<0>\n"
      "t1 = rekey[(k0 // 2, 0)](t0): f32[2]<2,1> duplicate<0,0>\n"
      "t2 = aggregate[1, 0; max](t1): f32[2]<1,2>\n"
      "t3 = tile[0, 1](Y): f32[4@1,4@-]<2,4>\n"
      "t4 = concat[1, 0](t3): f32[4,4]<2>\n"
      "t5 = transform[relu](Y): f32[4,4]<2>\n"
      "t6 = join[0; 0; matmul](t4, t5): f32[4,4]<2>\n"
      "output A = t2\n"
      "output B -> Y = t6\n";
  EXPECT_EQ(print(parse(text)), text);
}

TEST(PlanText, NodeNamesPassOverTheNamesOfInputs) {
  const Plan plan = parse(
      "tra\ninput t0: f32[4]<2>\ninput t2: f32[4]<2>\nx = transform[relu](t0)\noutput Z = join[0; 0; add](x, t2)");
  EXPECT_EQ(print(plan),
            "tra\n"
            "input t0: f32[4]<2>\n"
            "input t2: f32[4]<2>\n"
            "t1 = transform[relu](t0): f32[4]<2>\n"
            "t3 = join[0; 0; add](t1, t2): f32[4]<2>\n"
            "output Z = t3\n");
}

TEST(PlanText, ReadsNestedExpressionsCommentsAndOwnNames) {
  const Plan nested = parse(
      "# a matrix product\n"
      "tra\n\n"
      "input X: f32[4,4]<2,2>   # the left operand\n"
      "product.1 = agg[0, 2; add](\n"
      "    join[1; 0; matmul](X, X))   # both at once\n\n"
      "output Z = product.1");
  const Plan flat = parse(
      "tra\n"
      "input X: f32[4,4]<2,2>\n"
      "t0 = join[1; 0; matmul](X, X): f32[4@0,4@2]<2,2,2>\n"
      "t1 = aggregate[0, 2; add](t0): f32[4,4]<2,2>  # stated\n"
      "output Z = t1\n");
  EXPECT_TRUE(nested == flat);
  EXPECT_EQ(nested.hash(), flat.hash());
  EXPECT_EQ(nested.text(), flat.text());
}

TEST(PlanText, KeywordsAreNamesWhereANameIsMeant) {
  const Plan plan = parse(
      "tra\ninput output: f32[4]<2>\ninput = transform[relu](output)\noutput tra = join[0; 0; add](input, output)");
  EXPECT_TRUE(parse(print(plan)) == plan);
}

TEST(PlanText, StatedTypesMayBeWrittenInAnyWay) {
  const std::string head = "tra\ninput X: f32[4,6]<2,2>\nt = filter[k0 == k1](X): ";
  EXPECT_EQ(parse_error(head + "f32[4,6]<2,2> hole<0,1>\noutput Z = t"), "no error");
  EXPECT_EQ(parse_error(head + "f32[4, 6] <2, 2> keys{<0,0>, <1,1>} # all\noutput Z = t"), "no error");
  EXPECT_EQ(parse_error(head + "f32[4@0,6@1{0,3,6}]<2,2>keys{<0,0>,<1,1>}\noutput Z = t"), "no error");
}

TEST(PlanText, AStatedTypeThatIsNotTheInferredOneIsAnErrorWithBoth) {
  EXPECT_EQ(parse_error("tra\ninput X: f32[4]<2>\nt = transform[relu](X): f32[4]<4>\noutput Z = t"),
            "parse: the stated type is not the inferred one: stated=f32[4]<4>, inferred=f32[4]<2>: line=3, column=25, "
            "near=`f32[4]<4>`");
}

TEST(PlanText, ErrorsNameTheirPlace) {
  const std::string head = "tra\ninput X: f32[4]<2>\n";
  EXPECT_EQ(parse_error("ia\n"), "parse: expected `tra`: line=1, column=1, near=`ia`");
  EXPECT_EQ(parse_error(head + "input X: f32[4]<2>"),
            "parse: name used twice: name=X: line=3, column=7, near=`X: f32[4]<2>`");
  EXPECT_EQ(parse_error(head + "X = transform[relu](X)"),
            "parse: name used twice: name=X: line=3, column=1, near=`X = transform[relu](X)`");
  EXPECT_EQ(parse_error(head + "output Z = t1\nt1 = transform[relu](X)"),
            "parse: no such input or node so far: name=t1: line=3, column=12, near=`t1`");
  EXPECT_EQ(parse_error(head + "t = shuffle[0](X)"),
            "parse: no such operator: name=shuffle, operators=[aggregate, join, rekey, filter, transform, tile, "
            "concat, call, upsert]: "
            "line=3, column=13, near=`0](X)`");
  EXPECT_EQ(parse_error(head), "parse: a plan needs an `output` line: line=3, column=1, near=`end of text`");
  EXPECT_EQ(parse_error(head + "output Z = X\noutput Z = X"),
            "parse: output named twice: name=Z: line=4, column=8, near=`Z = X`");
  EXPECT_EQ(parse_error(head + "output Z -> Y = X"),
            "parse: no such input to tie to: name=Y: line=3, column=13, near=`Y = X`");
  EXPECT_EQ(parse_error(head + "output Z = transform[relu](X"),
            "parse: expected `)`: line=3, column=29, near=`end of text`");
  EXPECT_EQ(parse_error(head + "output Z = X\nX"), "parse: expected `=`: line=4, column=2, near=`end of text`");
}

TEST(PlanText, TypeErrorsNameTheirLine) {
  EXPECT_EQ(parse_error("tra\ninput X: f32[4]<2>\n\noutput Z = aggregate[; add](\n  join[0; 0, 1; add](X, X))"),
            "join: key lists differ in length: left=[0], right=[0, 1], line=5");
  EXPECT_EQ(parse_error("tra\ninput X: f32[4]<2>\noutput Z -> X = rekey[(k0, 0)](X)"),
            "plan: a tied output has its input's type: output=Z, type=f32[4@0]<2,1>, input type=f32[4]<2>, line=3");
}

TEST(PlanText, NestingIsLimited) {
  const auto nested = [](int depth) {
    std::string text = "tra\ninput X: f32[4]<2>\noutput Z = ";
    for (int i = 0; i < depth; ++i) text += "transform[relu](";
    return text + "X" + std::string(depth, ')');
  };
  EXPECT_EQ(parse_error(nested(200)), "no error");
  EXPECT_EQ(parse_error(nested(201)).substr(0, 42), "parse: nested too deeply: limit=200: line=");
}

TEST(PlanText, ChainsOfTenThousandNodesPrintAndParse) {
  std::string text = "tra\ninput X: f32[4]<2>\nn0 = transform[relu](X)\n";
  for (int i = 1; i < 10000; ++i) text += concatenate("n", i, " = transform[negate](n", i - 1, ")\n");
  const Plan plan = parse(text + "output Z = n9999");
  EXPECT_EQ(plan.order().size(), 10001U);
  EXPECT_TRUE(parse(print(plan)) == plan);
}

TEST(PlanText, LookupTablesAreNoPartOfTheHash) {
  const auto tables = [](std::vector<int64_t> values) {
    return relation::LookupTables{
        {"owner", std::make_shared<const relation::LookupTable>(relation::LookupTable{"owner", std::move(values)})}};
  };
  const std::string text = "tra\ninput X: f32[4]<2>\noutput Z = rekey[(lookup(owner, k0))](X)";
  const Plan a = parse(text, tables({0, 1}));
  const Plan b = parse(text, tables({5, 2}));
  EXPECT_TRUE(a == b);
  EXPECT_EQ(a.hash(), b.hash());
  EXPECT_EQ(parse_error(text).substr(0, 29), "parse: no such lookup table: ");
}

TEST(PlanText, EqualPlansShareAlike) {
  const std::string head = "tra\ninput X: f32[4]<2>\n";
  const Plan shared = parse(head + "a = transform[relu](X)\noutput Z = join[0; 0; add](a, a)");
  const Plan apart = parse(head + "output Z = join[0; 0; add](transform[relu](X), transform[relu](X))");
  EXPECT_FALSE(shared == apart);
  EXPECT_TRUE(shared == parse(print(shared)));
  EXPECT_TRUE(apart == parse(print(apart)));
  EXPECT_FALSE(shared == parse(head + "a = transform[relu](X)\noutput Y = join[0; 0; add](a, a)"));
  EXPECT_FALSE(parse(head + "output Z = X") == parse("tra\ninput X: f32[4]<4>\noutput Z = X"));
  EXPECT_FALSE(parse(head + "output Z = X") == parse(head + "output Z -> X = X"));
  EXPECT_FALSE(parse(head + "output Z = X") == parse("tra\ninput Y: f32[4]<2>\noutput Z = Y"));
}

TEST(PlanText, ParsesWhatItPrintsOfRandomPlans) {
  std::map<std::string, int> operators;
  int tied = 0;
  for (uint64_t seed = 0; seed < 700; ++seed) {
    testing::RandomPlans random(seed);
    const Plan plan = random.plan();
    const std::string text = print(plan);
    ASSERT_NO_THROW(EXPECT_TRUE(parse(text) == plan) << text) << text;
    EXPECT_EQ(print(parse(text)), text);
    for (const NodePtr& node : plan.order()) ++operators[operator_name(node->operation())];
    for (const auto& output : plan.outputs()) tied += output.tied_input ? 1 : 0;
  }
  EXPECT_EQ(operators.size(), 9U);
  for (const auto& [name, count] : operators) EXPECT_GT(count, 50) << name;
  EXPECT_GT(tied, 20);
}

}  // namespace
}  // namespace joinsum::tra

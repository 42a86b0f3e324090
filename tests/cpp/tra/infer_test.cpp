#include "tra/infer.h"

#include <gtest/gtest.h>

#include "tra/nodes.h"
#include "tra/text.h"

namespace joinsum::tra {
namespace {

/// Inputs of the plans below: X and Y make a matrix product, U is cut unevenly, H has a hole at <1,0>, D has key <0>
/// twice.
std::string with_inputs(const std::string& expression) {
  return "tra\n"
         "input X: f32[10,6]<4,2>\n"
         "input Y: f32[6,8]<2,3>\n"
         "input U: f32[6@0{0,1,6},4]<2,2>\n"
         "input H: f32[4,4]<2,2> keys{<0,0>,<0,1>,<1,1>}\n"
         "input D: f32[3@-]<1> keys{<0>,<0>}\n"
         "input I: i32[6,8]<2,3>\n"
         "output Z = " +
         expression;
}

std::string type_of(const std::string& expression) {
  return parse(with_inputs(expression)).outputs()[0].node->type().text();
}

/// What is wrong with `expression`, without the line that the parser adds.
std::string error_of(const std::string& expression) {
  std::string message = "no error";
  try {
    parse(with_inputs(expression));
  } catch (const Error& error) {
    message = error.what();
  }
  return message.substr(0, message.rfind(", line="));
}

TEST(Infer, AggregateKeepsTheGroupDimensionsInTheirOrder) {
  EXPECT_EQ(type_of("aggregate[0; add](X)"), "f32[10@0,3]<4>");
}

TEST(Infer, JoinKeyIsAllLeftComponentsThenTheRightOnesThatAreNotJoined) {
  EXPECT_EQ(type_of("join[1; 0; matmul](X, Y)"), "f32[10@0,8@2]<4,2,3>");
  EXPECT_EQ(type_of("aggregate[0, 2; add](join[1; 0; matmul](X, Y))"), "f32[10,8]<4,3>");
}

TEST(Infer, FilterLeavesHolesAndNamesTheFirst) { EXPECT_EQ(type_of("filter[k0 != 1](X)"), "f32[10,6]<4,2> hole<1,0>"); }

TEST(Infer, UpsertHasTheKeysOfBoth) {
  EXPECT_EQ(type_of("upsert(filter[k0 != 1](X), X)"), "f32[10,6]<4,2>");
  EXPECT_EQ(type_of("upsert(filter[k0 == 0](X), filter[k0 == 2](X))"), "f32[8@0{0,3,5,8},6]<3,2> hole<1,0>");
  EXPECT_EQ(type_of("upsert(rekey[(k0)](H), filter[false](rekey[(k0)](H)))"), type_of("rekey[(k0)](H)"));
}

TEST(Infer, UpsertOfOtherArraysRaises) {
  EXPECT_EQ(error_of("upsert(X, I)"), "upsert: operands have different dtypes: base=f32, updates=i32");
  EXPECT_EQ(error_of("upsert(X, rekey[(k0)](X))").substr(0, 62),
            "upsert: operands have keys of different arity, or arrays of di");
  EXPECT_EQ(error_of("upsert(X, filter[k0 == 0 and k1 == 0](rekey[(3 - k0, k1)](X)))").substr(0, 7), "upsert:");
}

TEST(Infer, RekeyLeavesDuplicatesAndNamesTheFirst) {
  EXPECT_EQ(type_of("rekey[(k0)](H)"), "f32[4@0,2]<2> duplicate<0>");
}

TEST(Infer, TileCountsThePiecesInANewLastComponent) { EXPECT_EQ(type_of("tile[0, 2](Y)"), "f32[3@2,8@1]<2,3,2>"); }

TEST(Infer, ConcatDropsTheKeyDimensionAndGrowsTheAxis) { EXPECT_EQ(type_of("concat[1, 1](X)"), "f32[10@0,6]<4>"); }

TEST(Infer, ConcatUndoesTile) { EXPECT_EQ(type_of("concat[2, 0](tile[0, 2](Y))"), "f32[3@-,8]<2,3>"); }

TEST(Infer, EveryOperatorTakesItsNumberOfInputs) {
  EXPECT_EQ(error_of("join[1; 0; matmul](X)"), "join: wrong number of inputs: inputs=1, wanted=2");
  EXPECT_EQ(error_of("tile[0, 1](X, Y)"), "tile: wrong number of inputs: inputs=2, wanted=1");
  EXPECT_EQ(error_of("filter[true]()"), "filter: wrong number of inputs: inputs=0, wanted=1");
  EXPECT_THROW(make(Input{"X"}, {}), PlanError);
}

TEST(Infer, JoinKeyListsHaveOneLength) {
  EXPECT_EQ(error_of("join[0, 1; 0; matmul](X, Y)"), "join: key lists differ in length: left=[0, 1], right=[0]");
}

TEST(Infer, JoinKeysAreDimensionsOfTheOperands) {
  EXPECT_EQ(error_of("join[2; 0; matmul](X, Y)"), "join: key dimension out of range: left=[2], key arity=2");
  EXPECT_EQ(error_of("join[0, 0; 0, 1; mul](X, Y)"), "join: key dimension named twice: left=[0, 0]");
}

TEST(Infer, JoinedAxesAreCutAtTheSamePoints) {
  EXPECT_EQ(
      error_of("join[0; 0; matmul](U, Y)"),
      "join: joined axes are cut at different points: left key dimension=0, cuts=[0, 1, 6], right key dimension=0, "
      "cuts=[0, 3, 6]");
}

TEST(Infer, JoinOperandsHaveOneDtype) {
  EXPECT_NE(error_of("join[0, 1; 0, 1; add](Y, I)").find("f32"), std::string::npos)
      << error_of("join[0, 1; 0, 1; add](Y, I)");
}

TEST(Infer, JoinKernelFitsTheArrays) {
  EXPECT_EQ(error_of("join[0; 0; matmul](X, X)").substr(0, 37), "join: array extents do not match: ker");
}

TEST(Infer, JoinKernelTakesTwoOperands) {
  EXPECT_EQ(error_of("join[0; 0; relu](X, X)"),
            "join: kernel has the wrong number of operands: kernel=relu, operands=1, wanted=2");
}

TEST(Infer, AggregateGroupsByDimensionsOfTheKey) {
  EXPECT_EQ(error_of("aggregate[2; add](X)"), "aggregate: key dimension out of range: keep=[2], key arity=2");
  EXPECT_EQ(error_of("aggregate[1, 1; add](X)"), "aggregate: key dimension named twice: keep=[1, 1]");
}

TEST(Infer, AggregateTakesArraysOfOneShape) {
  EXPECT_EQ(error_of("aggregate[1; add](U)"),
            "aggregate: arrays of one group differ in shape: keys=<0,0> and <1,0>, shapes=[1, 2] and [5, 2]");
}

TEST(Infer, AggregateOfEqualKeysNeedsAKernelThatMayBeReordered) {
  EXPECT_EQ(
      error_of("aggregate[; sub](D)"),
      "aggregate: the result depends on the order of equal keys, and the kernel is not associative and commutative: "
      "kernel=sub, key=<0>");
  EXPECT_EQ(type_of("aggregate[; add](D)"), "f32[3]<>");
}

TEST(Infer, RekeyReadsComponentsOfTheKey) {
  EXPECT_EQ(error_of("rekey[(k2)](X)"),
            "rekey: key map reads a component that the key lacks: key map=(k2), key arity=2");
}

TEST(Infer, RekeyGivesKeysThatAreNotNegative) {
  EXPECT_EQ(error_of("rekey[(k0 - 1)](X)"), "key map: negative component: component=k0 - 1, value=-1, key=<0,0>");
}

TEST(Infer, FilterTakesAComparisonOfKeyComponents) {
  EXPECT_EQ(error_of("filter[k0 + 1](X)"), "filter: a predicate is a comparison: predicate=k0 + 1");
  EXPECT_EQ(error_of("filter[k2 == 0](X)"),
            "filter: predicate reads a component that the key lacks: predicate=k2 == 0, key arity=2");
  EXPECT_EQ(error_of("filter[m == 0](X)"),
            "filter: predicate reads a component that the key lacks: predicate=m == 0, key arity=2");
}

TEST(Infer, TransformTakesAKernelOfOneOperandAndOneResult) {
  EXPECT_EQ(error_of("transform[add](X)"),
            "transform: kernel has the wrong number of operands: kernel=add, operands=2, wanted=1");
}

TEST(Infer, KernelsAreLookedUpByName) {
  EXPECT_NE(error_of("transform[rellu](X)").find("rellu"), std::string::npos);
  EXPECT_NE(error_of("transform[rellu](X)").find("relu"), std::string::npos);
}

TEST(Infer, TileCutsAnAxisOfOneExtent) {
  EXPECT_EQ(error_of("tile[0, 1](U)"),
            "tile: arrays differ along the tiled axis, so tile counts would too; concat the axis first: axis=0, "
            "cuts=[0, 1, 6]");
  EXPECT_EQ(error_of("tile[2, 1](X)"), "tile: axis out of range: axis=2, rank=2");
  EXPECT_EQ(error_of("tile[1, 0](X)"), "tile: tiles need a positive size: size=0");
}

TEST(Infer, ConcatOverAHoleNamesTheMissingKey) {
  EXPECT_EQ(error_of("concat[0, 0](H)"), "concat: concat over a hole: missing key=<1,0>");
}

TEST(Infer, ConcatOverADuplicateNamesIt) {
  EXPECT_EQ(error_of("concat[0, 0](D)"), "concat: concat over a key that occurs twice: key=<0>");
}

TEST(Infer, ConcatTakesAKeyDimensionAndAnAxis) {
  EXPECT_EQ(error_of("concat[2, 0](X)"), "concat: key dimension out of range: key dimension=2, key arity=2");
  EXPECT_EQ(error_of("concat[-1, 0](X)"), "concat: key dimension out of range: key dimension=-1, key arity=2");
  EXPECT_EQ(error_of("concat[0, 2](X)"), "concat: axis out of range: axis=2, rank=2");
}

TEST(Infer, ConcatenatedArraysAgreeInTheOtherAxes) {
  EXPECT_EQ(error_of("concat[0, 1](U)"),
            "concat: arrays to concatenate differ in another axis: axis=0, cuts=[0, 1, 6]");
}

TEST(Infer, SizesThatCannotBeListedAreErrorsAtOnce) {
  const auto error = [](const std::string& type, const std::string& expression) -> std::string {
    try {
      parse("tra\ninput X: " + type + "\noutput Z = " + expression).text();
    } catch (const PlanError& caught) {
      return std::string(caught.what()).substr(0, 20);
    }
    return "no error";
  };
  EXPECT_EQ(error("f32[9000000000]<9000000000>", "X"), "cut: too many parts:");
  EXPECT_EQ(error("f32[9000000000]<>", "tile[0, 1](X)"), "tile: too many keys ");
  EXPECT_EQ(error("f32[3@0{0,1,3}]<2>", "rekey[(k0 * 9000000000)](X)"), "rekey: too many keys");
  EXPECT_EQ(error("f32[]<9000000000>", "filter[k0 == 0](X)"), "filter: too many key");
  EXPECT_EQ(error("f32[]<9000000000,9000000000>", "X"), "parse: size exceeds ");
  EXPECT_EQ(error("f32[]<1> keys{<9000000000>}", "X"), "parse: key beyond th");
  EXPECT_EQ(error("f32[]<9000000001> keys{<9000000000>}", "filter[true](X)"), "no error");
}

TEST(Plan, HasDistinctNamesAndAtLeastOneOutput) {
  const NodePtr x = make_input("X", RelationType::parse("f32[4]<2>"));
  const NodePtr other = make_input("X", RelationType::parse("f32[4]<2>"));
  EXPECT_THROW(Plan::make({}), PlanError);
  EXPECT_THROW(Plan::make({{"Z", x, {}}, {"Z", x, {}}}), PlanError);
  EXPECT_THROW(Plan::make({{"Z", x, {}}, {"Y", other, {}}}), PlanError);
  EXPECT_THROW(Plan::make({{"Z 1", x, {}}}), PlanError);
  EXPECT_THROW(make_input(".X", x->type()), PlanError);
  EXPECT_EQ(Plan::make({{"Z", x, {}}, {"Y", x, {}}}).inputs().size(), 1U);
}

TEST(Plan, TiesAnOutputToAnInputOfItsType) {
  const NodePtr x = make_input("X", RelationType::parse("f32[4]<2>"));
  const NodePtr next = make(Transform{Kernel::parse("relu")}, {x});
  const NodePtr other = make(Rekey{KeyMap::parse("(0, k0)")}, {x});
  EXPECT_EQ(Plan::make({{"X", next, "X"}}).outputs()[0].tied_input, "X");
  EXPECT_THROW(Plan::make({{"X", other, "X"}}), PlanError);
  EXPECT_THROW(Plan::make({{"X", next, "Y"}}), PlanError);
}

}  // namespace
}  // namespace joinsum::tra

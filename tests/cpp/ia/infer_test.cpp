#include "ia/infer.h"

#include <gtest/gtest.h>

#include "ia/text.h"
#include "kernels/table/table.h"

namespace joinsum::ia {
namespace {

/// Inputs of the expressions below; T's arrays are the same size at every key, D has the key <0> twice.
constexpr const char* kInputs = R"(ia on 2x2
input A: f32[8,8]<4,4> (0, 1)
input B: f32[8,8]<4,4> (0, 1)
input R: f32[8,8]<4,4> (*, *)
input T: f32[2]<4,4> (0, 1)
input T0: f32[2]<4,4> (0, *)
input T1: f32[2]<4,4> (*, 1)
input TS: f32[2]<4,4> (0, 0)
input V: f32[2@-]<4> (0, 0)
input W: f32[2@-]<4> (0, *)
input U: f32[2@-]<4> (*, *)
input D: f32[2@-]<4> keys{<0>,<0>,<1>} (*, *)
)";

std::string type_of(const std::string& expression) {
  return parse(kInputs + ("output Z = " + expression)).outputs()[0].node->type().text();
}

std::string error_of(const std::string& expression) {
  try {
    return "no error: " + type_of(expression);
  } catch (const PlanError& error) {
    return error.what();
  }
}

/// What inferring the type of a node raises.
std::string error_of(const Operation& operation, const std::vector<PhysicalType>& inputs) {
  try {
    std::vector<const PhysicalType*> types;
    for (const PhysicalType& input : inputs) types.push_back(&input);
    return "no error: " + infer(operation, types).text();
  } catch (const PlanError& error) {
    return error.what();
  }
}

PhysicalType replicated(const Grid& grid) {
  return PhysicalType::placed("test", RelationType::parse("f32[8]<4>"), grid, Placement::replicated(grid));
}

void expect_error(const std::string& expression, const std::string& fragment) {
  EXPECT_NE(error_of(expression).find(fragment), std::string::npos)
      << expression << "\n  raises " << error_of(expression);
}

// --- joins -----------------------------------------------------------------------------------------------------------

TEST(LocalJoin, KeepsWhatBothSidesSplitAlike) {
  EXPECT_EQ(type_of("join[0, 1; 0, 1; add](A, B)"), "f32[8,8]<4,4> on 2x2 (0, 1)");
  EXPECT_EQ(type_of("join[1; 0; matmul](shuffle[(*, 1)](A), shuffle[(*, 0)](B))"), "f32[8@0,8@2]<4,4,4> on 2x2 (*, 1)");
}

TEST(LocalJoin, TakesASplitFromTheSideThatHasIt) {
  EXPECT_EQ(type_of("join[1; 0; matmul](A, R)"), "f32[8@0,8@2]<4,4,4> on 2x2 (0, 1)");
  EXPECT_EQ(type_of("join[1; 0; matmul](R, A)"), "f32[8@0,8@2]<4,4,4> on 2x2 (1, 2)");
  EXPECT_EQ(type_of("join[0; 0; mul](T1, W)"), "f32[2]<4,4> on 2x2 (0, 1)");
}

TEST(LocalJoin, MeetsACoarserSplitOfTheSameKey) {
  EXPECT_EQ(type_of("join[0; 0; mul](W, V)"), "f32[2@-]<4> on 2x2 (0, 0)");
  EXPECT_EQ(type_of("join[0; 0; mul](V, W)"), "f32[2@-]<4> on 2x2 (0, 0)");
}

TEST(LocalJoin, RefusesOperandsThatDoNotMeet) {
  expect_error("join[1; 0; matmul](A, B)",
               "local_join: operands do not meet on one site; the axes that split a join key must agree: left=(0, 1), "
               "right=(0, 1), keys=[1] and [0]");
  expect_error(
      "join[; ; matmul](A, B)",
      "local_join: operands do not meet on one site; shuffle both by the join keys, or broadcast one: left=(0, 1), "
      "right=(0, 1), keys=[] and []");
  expect_error("join[0; 0; mul](shuffle[(*, 0)](U), V)",
               "the axes that split a join key must agree: left=(*, 0), right=(0, 0)");
  expect_error("join[0; 0; mul](shuffle[(0:5, *)](U), W)",
               "shuffle both by the join keys, or broadcast one: left=(0:5, *)");
  expect_error("join[0, 1; 0, 1; mul](T0, shuffle[(1, *)](T1))", "shuffle both by the join keys, or broadcast one");
}

TEST(LocalJoin, CarriesAPendingSideThroughAKernelThatDistributes) {
  EXPECT_EQ(type_of("join[0; 0; mul](agg[1; add](T), U)"), "f32[2@-]<4> on 2x2 (+add, 0)");
  EXPECT_EQ(type_of("join[0; 0; mul](U, agg[1; add](T))"), "f32[2@-]<4> on 2x2 (+add, 0)");
  EXPECT_EQ(type_of("join[0; 0; div](agg[1; add](T), U)"), "f32[2@-]<4> on 2x2 (+add, 0)");
  EXPECT_EQ(type_of("join[0; 0; add](agg[1; max](T), U)"), "f32[2@-]<4> on 2x2 (+max, 0)");
  EXPECT_EQ(type_of("join[0; 0; mul](agg[1; add](T0), agg[0; add](T1))"), "f32[2@-]<4> on 2x2 (+add, +add)");
}

TEST(LocalJoin, OfPartialValuesOfBothSidesGivesPartialValues) {
  EXPECT_EQ(type_of("join[0; 0; add](agg[1; add](T), agg[1; add](T))"), "f32[2@-]<4> on 2x2 (+add, 0)");
  EXPECT_EQ(type_of("join[0; 0; sub](agg[0; add](T1), agg[0; add](T1))"), "f32[2@-]<4> on 2x2 (*, +add)");
  EXPECT_EQ(type_of("join[0; 0; max](agg[1; max](T0), agg[1; max](T0))"), "f32[2@-]<4> on 2x2 (+max, *)");
  EXPECT_EQ(type_of("join[; ; add](agg[; add](T), agg[; add](T))"), "f32[2]<> on 2x2 (+add, +add)");
}

TEST(LocalJoin, RefusesPartialValuesOfBothSidesThatDoNotMeet) {
  const std::string none = "local_join: partial values of both operands give none of the result; reduce one first: ";
  expect_error("join[0; 0; mul](agg[0; add](T1), agg[0; add](T1))", none + "kernel=mul");
  expect_error("join[0; 0; add](agg[0; max](T1), agg[0; max](T1))", none + "kernel=add");
  expect_error("join[0; 0; max](agg[0; max](T1), agg[0; min](T1))", none + "kernel=max");
  const std::string apart =
      "local_join: of operands that are both pending each site needs partial values of equal keys";
  expect_error("join[; ; add](agg[0; add](T1), agg[0; add](T1))", apart);
  // Three sites of which the third one has a partial value of one operand alone.
  const std::string three = "ia on 3\ninput P: f32[3]<3> (0)\ninput Q: f32[2]<2> (0:3)\noutput Z = ";
  try {
    parse(three + "broadcast(join[; ; add](agg[; add](P), agg[; add](Q)))");
    ADD_FAILURE() << "no error";
  } catch (const PlanError& error) {
    EXPECT_NE(std::string(error.what()).find(apart), std::string::npos) << error.what();
  }
  const Plan met = parse(three + "broadcast(join[; ; add](agg[; add](P), agg[; add](P)))");
  EXPECT_EQ(met.outputs()[0].node->type().text(), "f32[1]<> on 3 (*)");
}

TEST(LocalJoin, RefusesPendingSidesThatItCannotCarry) {
  const std::string not_linear =
      "local_join: kernel does not distribute over the pending reduction; reduce the operand first: ";
  expect_error("join[0; 0; add](agg[1; add](T), U)", not_linear + "kernel=add, reduction=add");
  expect_error("join[0; 0; div](U, agg[1; add](T))", not_linear + "kernel=div, reduction=add");
  expect_error("join[0; 0; mul](U, agg[1; max](T))", not_linear + "kernel=mul, reduction=max");
  const std::string not_replicated = "local_join: a pending operand meets replicated ones only; reduce it first: left=";
  expect_error("join[0; 0; mul](agg[1; add](T0), W)", not_replicated + "(+add, *), right=(0, *)");
  expect_error("join[0; 0; mul](W, agg[1; add](T0))", not_replicated + "(0, *), right=(+add, *)");
  expect_error("join[; ; mul](agg[1; add](T0), W)", not_replicated);
  expect_error(
      "join[0; 0; min](agg[1; max](T0), agg[0; min](T1))",
      "local_join: operands are pending under different reductions; reduce one first: left=(+max, *), right=(*, +min)");
}

TEST(LocalJoin, RefusesEqualKeysInAPendingResult) {
  expect_error(
      "join[0; 0; mul](agg[1; add](T0), D)",
      "local_join: a key would occur twice in a pending result, and partials are identified by key; reduce the "
      "operand first: key=<0>");
  EXPECT_EQ(type_of("join[0; 0; mul](broadcast(agg[1; add](T0)), D)"), "f32[2@-]<2> duplicate<0> on 2x2 (*, *)");
}

TEST(LocalJoin, LeavesScatteredTuplesWhereTheyAre) {
  const std::string scattered = "map[(k0 * 2); id](V)";
  EXPECT_EQ(type_of("join[0; 0; mul](" + scattered + ", U)"), "f32[2@-]<3> hole<1> on 2x2 (scattered[0])");
  EXPECT_EQ(type_of("join[1; 0; mul](broadcast(T), " + scattered + ")"), "f32[2]<4,3> hole<0,1> on 2x2 (scattered[1])");
  expect_error(
      "join[0; 0; mul](" + scattered + ", W)",
      "local_join: a scattered operand meets fully replicated ones only; shuffle it first: left=(scattered[0]), "
      "right=(0, *)");
  expect_error("join[0; 0; mul](" + scattered + ", " + scattered + ")",
               "a scattered operand meets fully replicated ones only");
}

// --- aggregates ------------------------------------------------------------------------------------------------------

TEST(LocalAggregate, LeavesPartialsAlongAxesThatSplitAGroup) {
  EXPECT_EQ(type_of("agg[0; add](T)"), "f32[2@-]<4> on 2x2 (0, +add)");
  EXPECT_EQ(type_of("agg[1; max](T)"), "f32[2@-]<4> on 2x2 (+max, 0)");
  EXPECT_EQ(type_of("agg[; add](TS)"), "f32[2]<> on 2x2 (+add, +add)");
  EXPECT_EQ(type_of("agg[1, 0; add](T)"), "f32[2]<4,4> on 2x2 (1, 0)");
  EXPECT_EQ(type_of("agg[1; add](T1)"), "f32[2@-]<4> on 2x2 (*, 0)");
  EXPECT_EQ(type_of("agg[; add](agg[0; add](T))"), "f32[2]<> on 2x2 (+add, +add)");
}

TEST(LocalAggregate, RefusesAggregationsThatNeedWholeGroups) {
  expect_error(
      "agg[0; sub](T)",
      "local_aggregate: kernel is not associative and commutative, and groups lie on several sites; shuffle to the "
      "groups first: kernel=sub, keep=[0], placement=(0, 1)");
  EXPECT_EQ(type_of("agg[0; sub](T0)"), "f32[2@-]<4> on 2x2 (0, *)");
  expect_error("agg[0; concat[1]](A)", "groups lie on several sites; shuffle to the groups first: kernel=concat[1]");
  EXPECT_EQ(type_of("agg[0; concat[1]](shuffle[0](A))"), "f32[8@0,8]<4> on 2x2 (0, 0)");
  expect_error("agg[; max](agg[0; add](T))",
               "local_aggregate: input is pending under another reduction; reduce it first: reduction=add, kernel=max");
}

TEST(LocalAggregate, LeavesNoPartialsOfAKernelWithParameters) {
  kernels::table::register_row({.name = "soft_maximum",
                                .summary = "log(exp(n a) + exp(n b)) / n",
                                .operands = 2,
                                .parameters = "n",
                                .facts = {.associative = true, .commutative = true},
                                .user = true});
  expect_error("agg[0; soft_maximum[2]](T)",
               "local_aggregate: a kernel with parameters leaves no pending partials; shuffle to the groups first: "
               "kernel=soft_maximum[2], keep=[0]");
  EXPECT_EQ(type_of("agg[0; soft_maximum[2]](T0)"), "f32[2@-]<4> on 2x2 (0, *)");
  kernels::table::unregister_row("soft_maximum");
}

TEST(LocalAggregate, AggregatesScatteredGroupsThatMeet) {
  EXPECT_EQ(type_of("agg[0; add](map[(k0 * 2, k1); id](TS))"), "f32[2@-]<7> hole<1> on 2x2 (scattered[0])");
  expect_error("agg[1; add](map[(k0 * 2, k1); id](TS))",
               "local_aggregate: groups of a scattered relation lie on several sites; shuffle it first: keep=[1], "
               "placement=(scattered[0])");
  expect_error("agg[0; add](map[(k0 // 2); id](V))", "groups of a scattered relation lie on several sites");
}

// --- filters and maps ------------------------------------------------------------------------------------------------

TEST(LocalUpsert, LiesWhereBothOperandsDo) {
  EXPECT_EQ(type_of("upsert(A, filter[k0 != 1](B))"), "f32[8,8]<4,4> on 2x2 (0, 1)");
  EXPECT_EQ(type_of("upsert(filter[k0 < 2](A), filter[k0 > 2](B))"), "f32[8,8]<4,4> hole<2,0> on 2x2 (0, 1)");
  EXPECT_EQ(type_of("upsert(R, broadcast(A))"), "f32[8,8]<4,4> on 2x2 (*, *)");
  EXPECT_EQ(type_of("upsert(D, filter[k0 == 0](U))"), "f32[2@-]<2> on 2x2 (*, *)");
}

/// What site 0 holds of V is <0>; the map brings it <3>, which leaves the last site.
TEST(LocalUpsert, WritesWhereTheNewValueLies) {
  const NodePtr node =
      parse(kInputs + std::string("output Z = upsert(V, filter[k0 == 3](map[(3 - k0); id](V)))")).outputs()[0].node;
  EXPECT_EQ(node->type().text(), "f32[2@-]<4> on 2x2 (scattered[0])");
  EXPECT_EQ(*node->type().holding.keys(0), (std::vector<Key>{{0}, {3}}));
  EXPECT_EQ(*node->type().holding.keys(3), std::vector<Key>{});
}

TEST(LocalUpsert, RaisesWhereTuplesWouldLieApart) {
  expect_error("upsert(A, R)",
               "local_upsert: operands that are placed differently hold each tuple on one site only; move both to one "
               "placement: base=(0, 1), updates=(*, *)");
  expect_error("upsert(T0, T1)", "operands that are placed differently");
  expect_error("upsert(agg[0; add](A), agg[0; add](A))", "local_upsert: an operand is pending; reduce it first: ");
  expect_error("upsert(A)", "local_upsert: wrong number of inputs: inputs=1, wanted=2");
}

TEST(LocalFilter, KeepsOwnersWhereTheFrontierShrinks) {
  EXPECT_EQ(type_of("filter[k0 < 3](V)"), "f32[2@-]<3> on 2x2 (0:4, 0:4)");
  EXPECT_EQ(type_of("filter[k0 != 1](V)"), "f32[2@-]<4> hole<1> on 2x2 (0, 0)");
  EXPECT_EQ(type_of("filter[k0 != 1](agg[1; add](T))"), "f32[2@-]<4> hole<1> on 2x2 (+add, 0)");
}

TEST(LocalMap, CarriesSplitsThatTheKeyMapCopies) {
  EXPECT_EQ(type_of("map[(k1, k0); transpose](A)"), "f32[8,8]<4,4> on 2x2 (1, 0)");
  EXPECT_EQ(type_of("map[2: (k0, m); duplicate](V)"), "f32[2]<4,2> on 2x2 (0, 0)");
  EXPECT_EQ(type_of("map[(k0 + 1); id](U)"), "f32[2@-]<5> hole<0> on 2x2 (*, *)");
}

TEST(LocalMap, ScattersTuplesWhoseSplitItLoses) {
  EXPECT_EQ(type_of("map[(k0 * 2); id](V)"), "f32[2@-]<7> hole<1> on 2x2 (scattered[0])");
  EXPECT_EQ(type_of("map[(k0 // 2); id](V)"), "f32[2@-]<2> duplicate<0> on 2x2 (scattered)");
  EXPECT_EQ(type_of("map[(k0 * 2, k1); id](TS)"), "f32[2]<7,4> hole<1,0> on 2x2 (scattered[0])");
  EXPECT_EQ(type_of("map[(k0); relu](map[(k0 * 2); id](V))"), "f32[2@-]<7> hole<1> on 2x2 (scattered[0])");
  expect_error(
      "map[(k0 * 2); id](W)",
      "local_map: a key map loses the split of a relation that is replicated on some axes; split or broadcast all "
      "axes first: key map=(k0 * 2), placement=(0, *)");
}

TEST(LocalMap, RunsOverPendingPartialsOnlyWhatDistributes) {
  EXPECT_EQ(type_of("map[(k0); scale[2]](agg[1; add](T))"), "f32[2@-]<4> on 2x2 (+add, 0)");
  EXPECT_EQ(type_of("map[(k0); relu](agg[1; max](T))"), "f32[2@-]<4> on 2x2 (+max, 0)");
  expect_error("map[(k0); relu](agg[1; add](T))",
               "local_map: kernel does not distribute over the pending reduction; reduce the input first: kernel=relu, "
               "reduction=add");
  expect_error("map[(k0 + 1); id](agg[1; add](T))",
               "local_map: a key map over a pending relation; reduce it first: key map=(k0 + 1)");
}

// --- moves -----------------------------------------------------------------------------------------------------------

TEST(Moves, TakeEverythingSettledOrScatteredToTheTarget) {
  EXPECT_EQ(type_of("broadcast[0](agg[0; add](T))"), "f32[2@-]<4> on 2x2 (*, +add)");
  EXPECT_EQ(type_of("broadcast[1](agg[0; add](T))"), "f32[2@-]<4> on 2x2 (0, *)");
  EXPECT_EQ(type_of("shuffle[(0, *)](map[(k0 * 2); id](V))"), "f32[2@-]<7> hole<1> on 2x2 (0, *)");
  EXPECT_EQ(type_of("broadcast(map[(k0 // 2); id](V))"), "f32[2@-]<2> duplicate<0> on 2x2 (*, *)");
}

TEST(Moves, RefuseTargetsThatAMoveCannotReach) {
  expect_error("shuffle[(+add, *)](V)",
               "shuffle: a move cannot make an axis pending: axis=0, from=(0, 0), to=(+add, *)");
  expect_error("shuffle[(+max, *)](agg[1; add](T))", "a move cannot make an axis pending: axis=0, from=(+add, 0)");
  expect_error("shuffle[(+add, *)](map[(k0 * 2); id](V))",
               "a move cannot make an axis pending: axis=0, from=(scattered[0])");
  expect_error("broadcast[0](map[(k0 * 2); id](V))",
               "broadcast: a scattered relation is broadcast along all axes: axes=[0], grid=2x2");
  expect_error("broadcast[2](V)", "broadcast: grid axes are not there, or named twice: axes=[2], grid=2x2");
  expect_error("broadcast[1, 1](V)", "broadcast: grid axes are not there, or named twice: axes=[1, 1], grid=2x2");
  expect_error("shuffle[(0:3, *)](V)", "shuffle: split domain below the frontier: domain=3, frontier=<4>");
  EXPECT_EQ(error_of(Shuffle{{{Replicated{}}}}, {replicated(Grid{{2, 2}})}),
            "shuffle: a target has one state per grid axis: target=(*), grid=2x2");
}

TEST(Infer, RefusesWrongOperands) {
  const LocalJoin join{{0}, {0}, {"add", {}}};
  EXPECT_EQ(error_of(join, {replicated(Grid{{2}})}), "local_join: wrong number of inputs: inputs=1, wanted=2");
  EXPECT_EQ(error_of(join, {replicated(Grid{{2}}), replicated(Grid{{3}})}),
            "local_join: operands lie on different grids: left=2, right=3");
  EXPECT_EQ(error_of(Input{"X"}, {}), "input: an input's type is given, not inferred: name=X");
}

}  // namespace
}  // namespace joinsum::ia

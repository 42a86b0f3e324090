#include "tra/interpret.h"

#include <gtest/gtest.h>

#include "tra/text.h"

namespace joinsum::tra {
namespace {

using kernels::reference::Array;

Array vector(std::vector<double> values) { return {{static_cast<int64_t>(values.size())}, std::move(values)}; }

Relation run(const std::string& text, const std::map<std::string, Relation>& inputs,
             const kernels::table::Scalars& scalars = {}) {
  return interpret(parse("tra\n" + text), inputs, scalars).at("Z");
}

const Relation kThree{{{0}, vector({1, 2})}, {{1}, vector({3, 4})}, {{2}, vector({-5, 6})}};

TEST(Interpret, AggregatesEachGroupInAscendingKeyOrder) {
  EXPECT_EQ(run("input X: f32[6]<3>\noutput Z = aggregate[; sub](X)", {{"X", kThree}}),
            (Relation{{{}, vector({3, -8})}}));
}

TEST(Interpret, AnEmptyRelationHasNoGroups) {
  EXPECT_EQ(run("input X: f32[6]<3>\noutput Z = aggregate[; add](filter[false](X))", {{"X", kThree}}), Relation{});
}

TEST(Interpret, RelationsAreBags) {
  const std::string head = "input X: f32[6]<3>\nr = rekey[(k0 // 2)](X)\noutput Z = ";
  EXPECT_EQ(run(head + "r", {{"X", kThree}}),
            (Relation{{{0}, vector({1, 2})}, {{0}, vector({3, 4})}, {{1}, vector({-5, 6})}}));
  EXPECT_EQ(run(head + "aggregate[0; add](r)", {{"X", kThree}}),
            (Relation{{{0}, vector({4, 6})}, {{1}, vector({-5, 6})}}));
  EXPECT_EQ(run(head + "aggregate[; add](join[0; 0; mul](r, r))", {{"X", kThree}}), (Relation{{{}, vector({41, 72})}}));
}

TEST(Interpret, JoinWithoutKeysPairsAll) {
  EXPECT_EQ(
      run("input X: f32[2@-]<2>\ninput Y: f32[2@-]<2>\noutput Z = join[; ; add](X, Y)",
          {{"X", {{{0}, vector({1, 1})}, {{1}, vector({2, 2})}}},
           {"Y", {{{0}, vector({10, 0})}, {{1}, vector({20, 0})}}}}),
      (Relation{
          {{0, 0}, vector({11, 1})}, {{0, 1}, vector({21, 1})}, {{1, 0}, vector({12, 2})}, {{1, 1}, vector({22, 2})}}));
}

TEST(Interpret, TileOfAnAxisThatDoesNotDivideLeavesAShortPiece) {
  EXPECT_EQ(run("input X: f32[3]<>\noutput Z = tile[0, 2](X)", {{"X", {{{}, vector({1, 2, 3})}}}}),
            (Relation{{{0}, vector({1, 2})}, {{1}, vector({3})}}));
}

TEST(Interpret, TileOfNothingIsOneEmptyPiece) {
  EXPECT_EQ(run("input X: f32[0]<>\noutput Z = tile[0, 2](X)", {{"X", {{{}, vector({})}}}}),
            (Relation{{{0}, vector({})}}));
}

TEST(Interpret, ConcatJoinsUnevenPieces) {
  EXPECT_EQ(run("input X: f32[5@0{0,1,1,5}]<3>\noutput Z = concat[0, 0](X)",
                {{"X", {{{2}, vector({6, 7, 8, 9})}, {{0}, vector({5})}, {{1}, vector({})}}}}),
            (Relation{{{}, vector({5, 6, 7, 8, 9})}}));
}

TEST(Interpret, ReadsNamedScalars) {
  EXPECT_EQ(run("input X: f32[6]<3>\noutput Z = transform[scale[$rate]](aggregate[; add](X))", {{"X", kThree}},
                {{"rate", 2}}),
            (Relation{{{}, vector({-2, 24})}}));
  EXPECT_THROW(run("input X: f32[6]<3>\noutput Z = transform[scale[$rate]](X)", {{"X", kThree}}), PlanError);
}

TEST(Interpret, InputsAreGivenAndFitTheirTypes) {
  const std::string text = "input X: f32[6]<3>\noutput Z = X";
  EXPECT_THROW(run(text, {}), PlanError);
  EXPECT_THROW(run(text, {{"X", {kThree[0], kThree[1]}}}), PlanError);
  EXPECT_THROW(run(text, {{"X", {kThree[0], kThree[1], {{3}, vector({1, 2})}}}}), PlanError);
  EXPECT_THROW(run(text, {{"X", {kThree[0], kThree[1], {{2}, vector({1, 2, 3})}}}}), PlanError);
  EXPECT_EQ(run(text, {{"X", {kThree[2], kThree[0], kThree[1]}}}), kThree);
}

}  // namespace
}  // namespace joinsum::tra

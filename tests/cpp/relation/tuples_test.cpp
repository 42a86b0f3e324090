#include "relation/tuples.h"

#include <gtest/gtest.h>

namespace joinsum::relation {
namespace {

using kernels::reference::Array;

const RelationType kType = RelationType::parse("f32[5@0{0,2,5}]<2>");
const Array kTwo{{2}, {1, 2}}, kThree{{3}, {3, 4, 5}};

std::string input_error(const Tuples& tuples) {
  try {
    interpreted_input("X", {{"X", tuples}}, kType);
    return "";
  } catch (const PlanError& error) {
    return error.what();
  }
}

TEST(Tuples, AnInputMayListItsTuplesInAnyOrder) {
  EXPECT_EQ(interpreted_input("X", {{"X", {{{1}, kThree}, {{0}, kTwo}}}}, kType), (Tuples{{{0}, kTwo}, {{1}, kThree}}));
}

TEST(Tuples, AnInputThatDoesNotFitSaysWhere) {
  EXPECT_EQ(input_error({{{0}, kTwo}}), "interpret: input does not fit its type: name=X, tuples=1, in the type=2");
  EXPECT_EQ(input_error({{{0}, kTwo}, {{2}, kThree}}),
            "interpret: input does not fit its type: name=X, key=<2>, in the type=<1>");
  EXPECT_EQ(input_error({{{0}, kTwo}, {{1}, kTwo}}),
            "interpret: input does not fit its type: name=X, key=<1>, shape=[2], in the type=[3]");
  EXPECT_THROW(interpreted_input("Y", {}, kType), PlanError);
}

TEST(Tuples, EqualBagsAreEqualListsOnceSorted) {
  Tuples one{{{1}, kThree}, {{0}, kTwo}, {{0}, kThree}}, other{{{0}, kThree}, {{1}, kThree}, {{0}, kTwo}};
  sort_bag(one);
  sort_bag(other);
  EXPECT_EQ(one, other);
}

}  // namespace
}  // namespace joinsum::relation

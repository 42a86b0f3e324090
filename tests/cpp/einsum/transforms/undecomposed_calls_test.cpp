#include "einsum/transforms/undecomposed_calls.h"

#include <gtest/gtest.h>

#include "einsum/text.h"

namespace joinsum::einsum::transforms {
namespace {

const std::string kTotal = "s = call[0; joinsum::total; ab -> a:f32; (%0{a,b}) -> {a}; reduce b=add](X)\n";
const std::string kQuotient =
    "t = call[0; joinsum::quotient; ab,a -> ab:f32; (%0{a,b}, %1{a}) -> {a,b}; "
    "undecomposed (0) {0; aten::_softmax; ab -> ab:f32; (%0{a,b}, 1, false) -> {a,b}; undivided=b}](X, s)\n";
const std::string kSoftmax =
    "t = call[0; aten::_softmax; ab -> ab:f32; (%0{a,b}, 1, false) -> {a,b}; undivided=b](X)\n";
const std::string kOutput = "output Z = einsum[ab->a; id; add](t)\n";

Plan plan(const std::string& text) { return parse("einsum\ninput X: f32[8,4]\n" + text); }

TEST(UndecomposedCalls, ReplaceTheirDecompositionAndWhatOnlyItReads) {
  EXPECT_EQ(with_undecomposed_calls(plan(kTotal + kQuotient + kOutput)), plan(kSoftmax + kOutput));
}

TEST(UndecomposedCalls, LeaveWhatOthersRead) {
  EXPECT_EQ(with_undecomposed_calls(plan(kTotal + kQuotient + kOutput + "output S = s\n")),
            plan(kTotal + kSoftmax + kOutput + "output S = s\n"));
}

TEST(UndecomposedCalls, LeavePlansWithoutDecompositions) {
  const Plan same = plan(kSoftmax + kOutput);
  EXPECT_EQ(with_undecomposed_calls(same), same);
}

}  // namespace
}  // namespace joinsum::einsum::transforms

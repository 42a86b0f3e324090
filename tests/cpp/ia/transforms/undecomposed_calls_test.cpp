#include "ia/transforms/undecomposed_calls.h"

#include <gtest/gtest.h>

#include "ia/text.h"

namespace joinsum::ia::transforms {
namespace {

const std::string kTotal = "local_call[0; joinsum::total; ab -> a:f32; (%0{a,b}) -> {a}; reduce b=add](X)";
const std::string kQuotient =
    "local_call[0; joinsum::quotient; ab,a -> ab:f32; (%0{a,b}, %1{a}) -> {a,b}; "
    "undecomposed (0) {0; aten::_softmax; ab -> ab:f32; (%0{a,b}, 1, false) -> {a,b}; undivided=b}]";
const std::string kUndecomposed =
    "local_call[0; aten::_softmax; ab -> ab:f32; (%0{a,b}, 1, false) -> {a,b}; undivided=b](X)";

Plan plan(const std::string& placement, const std::string& text) {
  return parse("ia on 2\ninput X: f32[8,4]<2,2> " + placement + "\n" + text);
}

TEST(UndecomposedCalls, RunWhereNoAxisDividesWhatIsMixed) {
  const std::string parts = "s = " + kTotal + "\noutput Z = " + kQuotient + "(X, s)";
  for (const char* placement : {"(0)", "(*)"}) {
    EXPECT_EQ(with_undecomposed_calls(plan(placement, parts)), plan(placement, "output Z = " + kUndecomposed))
        << placement;
  }
}

TEST(UndecomposedCalls, StayDecomposedWhereAnAxisDividesIt) {
  const Plan parts = plan("(1)", "s = " + kTotal + "\nt = broadcast[0](s)\noutput Z = " + kQuotient + "(X, t)");
  EXPECT_EQ(with_undecomposed_calls(parts), parts);
}

TEST(UndecomposedCalls, PartialSumsThatOthersReadStay) {
  const std::string total = "s = " + kTotal + "\n";
  EXPECT_EQ(with_undecomposed_calls(plan("(0)", total + "output Z = " + kQuotient + "(X, s)\noutput S = s")),
            plan("(0)", total + "output Z = " + kUndecomposed + "\noutput S = s"));
}

TEST(UndecomposedCalls, ReadersFollow) {
  const std::string map = "map[(k0, k1); exp](";
  EXPECT_EQ(with_undecomposed_calls(plan("(0)", "s = " + kTotal + "\noutput Z = " + map + kQuotient + "(X, s))")),
            plan("(0)", "output Z = " + map + kUndecomposed + ")"));
}

}  // namespace
}  // namespace joinsum::ia::transforms

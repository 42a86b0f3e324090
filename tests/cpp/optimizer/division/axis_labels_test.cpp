#include "optimizer/division/axis_labels.h"

#include <gtest/gtest.h>

#include "einsum/text.h"

namespace joinsum::optimizer::division {
namespace {

TEST(AxisLabels, OfAnEinsumAreThoseOfItsOperandsAndOfItsResult) {
  const einsum::Plan plan =
      einsum::parse("einsum\ninput X: f32[4,8]\ninput W: f32[8,2]\noutput Y = einsum[bi,ij->bj; mul; add](X, W)\n");
  const einsum::Node& y = *plan.outputs()[0].node;
  EXPECT_EQ(axis_labels(y), (std::vector<einsum::Labels>{{"b", "i"}, {"i", "j"}, {"b", "j"}}));
  EXPECT_EQ(axis_labels(*y.input(0)), (std::vector<einsum::Labels>{{"0", "1"}}));
}

}  // namespace
}  // namespace joinsum::optimizer::division

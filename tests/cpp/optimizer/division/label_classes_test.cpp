#include "optimizer/division/label_classes.h"

#include <gtest/gtest.h>

#include "tra/text.h"

namespace joinsum::optimizer::division {
namespace {

using Labels = std::vector<int64_t>;

TEST(LabelClasses, AreTheLettersOfAnEinsum) {
  const tra::Plan plan = tra::parse(R"(tra
input X: f32[8,6]<4,3>
input Y: f32[6,10]<3,5>
output Z = agg[0, 2; add](join[1; 0; matmul](X, Y))
)");
  const LabelClasses labels(plan);
  EXPECT_EQ(labels.count(), 3);
  const auto inputs = plan.inputs();
  EXPECT_EQ(labels.of(*inputs[0]), (Labels{0, 1}));
  EXPECT_EQ(labels.of(*inputs[1]), (Labels{1, 2}));
  EXPECT_EQ(labels.of(*plan.outputs()[0].node), (Labels{0, 2}));
  EXPECT_EQ(labels.name(1), "X[1]");
  EXPECT_EQ(labels.name(2), "Y[1]");
}

TEST(LabelClasses, ATieEquatesTheDimensionsOfInputAndOutput) {
  const tra::Plan plan = tra::parse(R"(tra
input W: f32[8,8]<4,4>
input X: f32[8,8]<4,4>
output V -> W = aggregate[0, 2; add](join[1; 0; matmul](W, X))
)");
  // The product has the labels i, j of W, j, k of X, and i, k; the tie makes i, j and k of W and V pairwise equal.
  EXPECT_EQ(LabelClasses(plan).count(), 2);
}

}  // namespace
}  // namespace joinsum::optimizer::division

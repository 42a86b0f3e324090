#include <gtest/gtest.h>

#include "runtime/execution/local/operator_runs.h"

namespace joinsum::runtime::execution::local {
namespace {

using relation::RelationType;

TEST(Contractions, AreOneProductOfWholeBoxes) {
  const auto x_type = RelationType::parse("f64[6,4]<3,2>"), w_type = RelationType::parse("f64[4,8]<2,2>");
  const auto joined = RelationType::parse("f64[6@0,8@2]<3,2,2>");
  const ia::LocalJoin join{{1}, {0}, {"matmul", {}}};
  const ia::LocalAggregate sum{{0, 2}, {"add", {}}};
  const auto contraction = prepare_contraction(join, sum, x_type, w_type, joined);
  OperatorRuns runs;
  const at::Tensor x = at::rand({6, 4}, at::kDouble), w = at::rand({4, 8}, at::kDouble);
  const auto pieces = runs.run(*contraction, {{&x_type, x}, {&w_type, w}});
  ASSERT_EQ(pieces.size(), 1U);
  EXPECT_EQ(pieces[0].box, (Box{{0, 0}, {3, 2}}));
  EXPECT_TRUE(at::allclose(pieces[0].array, at::mm(x, w)));
  EXPECT_EQ(runs.parts, 1);
  EXPECT_EQ(runs.flops, 2 * 6 * 4 * 8);
  EXPECT_NE(contraction->text().find("modes=[whole, whole, whole]"), std::string::npos);
}

TEST(Contractions, ReduceTheKeysOfBatchAxesWithTheArrays) {
  const auto x_type = RelationType::parse("f64[6@-,4@-]<3>"), w_type = RelationType::parse("f64[4@-,5@-]<3>");
  const auto joined = RelationType::parse("f64[6@-,5@-]<3>");
  const ia::LocalJoin join{{0}, {0}, {"matmul", {}}};
  const ia::LocalAggregate sum{{}, {"add", {}}};
  OperatorRuns runs;
  const at::Tensor x = at::rand({3, 6, 4}, at::kDouble), w = at::rand({3, 4, 5}, at::kDouble);
  const auto pieces = runs.run(*prepare_contraction(join, sum, x_type, w_type, joined), {{&x_type, x}, {&w_type, w}});
  ASSERT_EQ(pieces.size(), 1U);
  EXPECT_TRUE(at::allclose(pieces[0].array, at::bmm(x, w).sum(0)));
  EXPECT_EQ(runs.parts, 1);
}

}  // namespace
}  // namespace joinsum::runtime::execution::local

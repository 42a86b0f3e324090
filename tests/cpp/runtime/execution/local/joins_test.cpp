#include "runtime/execution/local/joins.h"

#include <gtest/gtest.h>

#include "runtime/execution/local/operator_runs.h"

namespace joinsum::runtime::execution::local {
namespace {

using relation::RelationType;

TEST(Joins, ElementwiseJoinsOfAlignedBoxesAreOneCall) {
  const auto type = RelationType::parse("f64[6,4]<3,2>");
  const ia::LocalJoin op{{0, 1}, {0, 1}, {"add", {}}};
  const auto join = prepare_join(op, type, type);
  EXPECT_EQ(join->text(), "modes=[whole, whole]");
  OperatorRuns runs;
  const at::Tensor x = at::rand({6, 4}, at::kDouble), y = at::rand({6, 4}, at::kDouble), wanted = x + y;
  const auto pieces = runs.run(*join, {{&type, x}, {&type, y}});
  ASSERT_EQ(pieces.size(), 1U);
  EXPECT_EQ(pieces[0].box, Box::below(type.frontier));
  EXPECT_TRUE(at::equal(pieces[0].array, wanted));
  EXPECT_NE(pieces[0].array.data_ptr(), x.data_ptr());
  EXPECT_EQ(runs.run(*join, {{&type, x}, {&type, y}}, true)[0].array.data_ptr(), x.data_ptr());
  EXPECT_TRUE(at::equal(x, wanted));
  EXPECT_EQ(runs.parts, 2);
}

TEST(Joins, OfABlockWithItselfInAnotherOrderAreNotWrittenOverIt) {
  const auto type = RelationType::parse("f64[3@-]<4,4>");
  const ia::LocalJoin op{{0, 1}, {1, 0}, {"sub", {}}};
  const auto join = prepare_join(op, type, type);
  OperatorRuns runs;
  const at::Tensor x = at::rand({4, 4, 3}, at::kDouble), wanted = x - x.transpose(0, 1);
  EXPECT_TRUE(at::equal(runs.run(*join, {{&type, x}, {&type, x}}, true)[0].array, wanted));
  EXPECT_EQ(runs.parts, 1);
}

TEST(Joins, WalkKeyByKeyWhereAKernelDoesNotTreatPartsAlike) {
  const auto x_type = RelationType::parse("f64[6,4]<1,2>"), w_type = RelationType::parse("f64[4,5]<2,1>");
  const ia::LocalJoin op{{1}, {0}, {"matmul", {}}};
  const auto join = prepare_join(op, x_type, w_type);
  OperatorRuns runs;
  const at::Tensor x = at::rand({6, 4}, at::kDouble), w = at::rand({4, 5}, at::kDouble);
  const auto pieces = runs.run(*join, {{&x_type, x}, {&w_type, w}});
  ASSERT_EQ(pieces.size(), 2U);
  for (int64_t k = 0; k < 2; ++k) {
    EXPECT_EQ(pieces[k].box, (Box{{0, k, 0}, {1, k + 1, 1}}));
    EXPECT_TRUE(at::allclose(pieces[k].array.reshape({6, 5}), at::mm(x.narrow(1, 2 * k, 2), w.narrow(0, 2 * k, 2))));
  }
  EXPECT_EQ(runs.parts, 0);
}

TEST(Joins, RunTheKernelsThatFollowTheFirst) {
  const auto type = RelationType::parse("f64[4]<2>");
  kernels::table::Kernel kernel = kernels::table::Kernel{"mul", {}}.followed_by({"negate", {}});
  const ia::LocalJoin op{{0}, {0}, kernel};
  OperatorRuns runs;
  const at::Tensor x = at::rand({4}, at::kDouble);
  EXPECT_TRUE(at::equal(runs.run(*prepare_join(op, type, type), {{&type, x}, {&type, x}})[0].array, -(x * x)));
  EXPECT_EQ(runs.parts, 1);
}

}  // namespace
}  // namespace joinsum::runtime::execution::local

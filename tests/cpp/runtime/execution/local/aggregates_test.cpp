#include <gtest/gtest.h>

#include "runtime/execution/local/operator_runs.h"

namespace joinsum::runtime::execution::local {
namespace {

using relation::RelationType;

TEST(Aggregates, ReduceBatchAxesAtOnceAndLinkedPartsOneByOne) {
  const auto type = RelationType::parse("f64[4@-]<3,2>");
  const ia::LocalAggregate op{{1}, {"add", {}}};
  OperatorRuns runs;
  const at::Tensor x = at::rand({3, 2, 4}, at::kDouble);
  const auto sum = runs.run(*prepare_aggregate(op, type), {{&type, x}});
  ASSERT_EQ(sum.size(), 1U);
  EXPECT_TRUE(at::allclose(sum[0].array, x.sum(0)));
  EXPECT_EQ(runs.parts, 1);

  const auto linked = RelationType::parse("f64[6]<3>");
  const ia::LocalAggregate all{{}, {"max", {}}};
  const at::Tensor y = at::rand({6}, at::kDouble);
  const auto most = runs.run(*prepare_aggregate(all, linked), {{&linked, y}});
  ASSERT_EQ(most.size(), 1U);
  EXPECT_TRUE(at::equal(most[0].array, y.reshape({3, 2}).amax(0)));
  EXPECT_EQ(runs.parts, 1);
}

TEST(Aggregates, ConcatenateThePartsOfAnAxis) {
  const auto type = RelationType::parse("f64[6]<3>");
  const ia::LocalAggregate op{{}, kernels::table::Kernel::parse("concat[0]")};
  OperatorRuns runs;
  const at::Tensor x = at::rand({6}, at::kDouble);
  const auto pieces = runs.run(*prepare_aggregate(op, type), {{&type, x}});
  ASSERT_EQ(pieces.size(), 1U);
  EXPECT_TRUE(at::equal(pieces[0].array, x));
}

}  // namespace
}  // namespace joinsum::runtime::execution::local

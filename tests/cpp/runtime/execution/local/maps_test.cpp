#include <gtest/gtest.h>

#include "runtime/execution/local/operator_runs.h"

namespace joinsum::runtime::execution::local {
namespace {

using relation::RelationType;

TEST(Maps, OverwriteTheirOperandWhereTheyMay) {
  const auto type = RelationType::parse("f64[6]<3>");
  const ia::LocalMap op{1, relation::KeyMap::identity(1), {"negate", {}}};
  OperatorRuns runs;
  const at::Tensor x = at::rand({6}, at::kDouble), wanted = -x;
  EXPECT_NE(runs.run(*prepare_map(op, type), {{&type, x}})[0].array.data_ptr(), x.data_ptr());
  EXPECT_EQ(runs.run(*prepare_map(op, type), {{&type, x}}, true)[0].array.data_ptr(), x.data_ptr());
  EXPECT_TRUE(at::equal(x, wanted));
  EXPECT_EQ(runs.parts, 2);
}

TEST(Maps, OfKeysGoTupleByTuple) {
  const auto type = RelationType::parse("f64[2@-]<3>");
  const ia::LocalMap op{1, relation::KeyMap::parse("(2 - k0)"), {"id", {}}};
  const auto map = prepare_map(op, type);
  EXPECT_EQ(map->text(), "tuple by tuple");
  OperatorRuns runs;
  const at::Tensor x = at::rand({3, 2}, at::kDouble);
  const auto pieces = runs.run(*map, {{&type, x}});
  ASSERT_EQ(pieces.size(), 3U);
  for (int64_t k = 0; k < 3; ++k) {
    EXPECT_EQ(pieces[k].box, Box::single({2 - k}));
    EXPECT_TRUE(at::equal(pieces[k].array.reshape({2}), x[k]));
  }
}

TEST(Maps, FiltersKeepTuplesWhosePredicateHolds) {
  const auto type = RelationType::parse("f64[6]<3>");
  const ia::LocalFilter op{relation::KeyExpression::parse("k0 != 1")};
  OperatorRuns runs;
  const at::Tensor x = at::rand({6}, at::kDouble);
  const auto pieces = runs.run(*prepare_filter(op, type), {{&type, x}});
  ASSERT_EQ(pieces.size(), 2U);
  EXPECT_TRUE(at::equal(pieces[1].array, x.narrow(0, 4, 2)));
}

}  // namespace
}  // namespace joinsum::runtime::execution::local

#include <gtest/gtest.h>

#include "relation/typing.h"
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

TEST(Maps, ReduceAllKeysOfABoxAtOnceWhereTheirPartsAreEqual) {
  const ia::LocalMap op{1, relation::KeyMap::identity(4), kernels::table::Kernel::parse("reduce_add[abc->b] | negate")};
  for (const auto& [text, shape, at_once] : {std::tuple{"f64[6@0,8@2,4@3]<3,2,4,2>", Dims{2, 6, 8, 4}, true},
                                             {"f64[6@3,8@2,4@0]<2,2,4,3>", {2, 6, 8, 4}, true},
                                             {"f64[7@0,8@2,4@3]<3,2,4,2>", {2, 7, 8, 4}, false}}) {
    const auto type = RelationType::parse(text);
    const auto map = prepare_map(op, type);
    OperatorRuns runs;
    const at::Tensor x = at::rand(shape, at::kDouble);
    const auto pieces = runs.run(*map, {{&type, x}});
    ASSERT_EQ(pieces.size(), 6U) << text;
    const Box all = Box::below(type.frontier);
    const OnePart part = map->on({all}, all);
    ASSERT_EQ(part != nullptr, at_once) << text;
    if (!at_once) continue;
    const at::Tensor given = part(PartOperand{x}, runs.context());
    const RelationType result = relation::map_type("test", type, 1, op.key_map, op.array_map);
    const storage::Layout layout(result);
    for (const PinnedPiece& piece : pieces) {
      EXPECT_TRUE(at::allclose(layout.slice(given, all, piece.box), piece.array)) << text << piece.box.text();
    }
  }
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

#include <gtest/gtest.h>

#include "relation/typing.h"
#include "runtime/execution/local/operator_runs.h"

namespace joinsum::runtime::execution::local {
namespace {

using relation::RelationType;

ia::LocalMap map_of(const std::string& kernel, int64_t arity) {
  return {1, relation::KeyMap::identity(arity), kernels::table::Kernel::parse(kernel)};
}

RelationType mapped(const ia::LocalMap& map, const RelationType& input) {
  return relation::map_type("test", input, 1, map.key_map, map.array_map);
}

TEST(Reductions, AreOneOfAxesAndKeysThatCutThem) {
  const auto type = RelationType::parse("f64[7,6,5]<3,2,2>");
  const ia::LocalMap map = map_of("reduce_add[abc->c]", 3);
  const ia::LocalAggregate aggregate{{2}, {"add", {}}};
  const auto reduction = prepare_reduction(map, aggregate, type, mapped(map, type));
  EXPECT_EQ(reduction->text(), "reduction of axes and keys, modes=[whole, whole, whole]");
  OperatorRuns runs;
  const at::Tensor x = at::rand({7, 6, 5}, at::kDouble);
  const auto pieces = runs.run(*reduction, {{&type, x}});
  ASSERT_EQ(pieces.size(), 1U);
  EXPECT_EQ(pieces[0].box, (Box{{0}, {2}}));
  EXPECT_TRUE(at::allclose(pieces[0].array, x.sum(at::IntArrayRef{0, 1})));
  EXPECT_EQ(runs.flops, 7 * 6 * 5 + (3 * 2 - 1) * 5);
  EXPECT_EQ(runs.parts, 1);
}

TEST(Reductions, KeepKeysThatNoAxisIsLinkedTo) {
  const auto type = RelationType::parse("f64[6@1,5@-]<4,2>");
  const ia::LocalMap map = map_of("reduce_max[ab->b]", 2);
  const ia::LocalAggregate aggregate{{0}, {"max", {}, {{"negate", {}}}}};
  OperatorRuns runs;
  const at::Tensor x = at::rand({4, 6, 5}, at::kDouble);
  const auto pieces = runs.run(*prepare_reduction(map, aggregate, type, mapped(map, type)), {{&type, x}});
  ASSERT_EQ(pieces.size(), 1U);
  EXPECT_EQ(pieces[0].box, (Box{{0}, {4}}));
  EXPECT_TRUE(at::equal(pieces[0].array, -x.amax(1)));
  EXPECT_EQ(runs.parts, 1);
}

TEST(Reductions, CombinePiecesOfOneGroup) {
  const auto type = RelationType::parse("f64[6,5]<3,1>");
  const ia::LocalMap map = map_of("reduce_logaddexp[ab->b]", 2);
  const ia::LocalAggregate aggregate{{1}, {"logaddexp", {}}};
  OperatorRuns runs;
  const at::Tensor x = at::rand({6, 5}, at::kDouble);
  std::vector<PinnedOperand> operands;
  operands.emplace_back(
      std::vector<PinnedPiece>{{Box{{0, 0}, {1, 1}}, x.narrow(0, 0, 2)}, {Box{{1, 0}, {3, 1}}, x.narrow(0, 2, 4)}});
  const auto pieces = prepare_reduction(map, aggregate, type, mapped(map, type))->run(operands, {}, runs.context());
  ASSERT_EQ(pieces.size(), 1U);
  EXPECT_TRUE(at::allclose(pieces[0].array, x.logsumexp(0)));
}

}  // namespace
}  // namespace joinsum::runtime::execution::local

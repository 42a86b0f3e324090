#include "runtime/execution/local/local_operator.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "runtime/execution/local/operator_runs.h"

namespace joinsum::runtime::execution::local {
namespace {

using relation::RelationType;

TEST(LocalOperator, OperandsPinTheirBlocks) {
  const auto store = storage::make_relocating_store();
  const auto type = RelationType::parse("f64[4]<1>");
  const Operand operand{type, {{Box::below({1}), store->put(at::ones({4}, at::kDouble))}}, true};
  at::Tensor array;
  {
    const PinnedOperand pinned(operand);
    EXPECT_TRUE(pinned.overwritable);
    array = pinned.pieces.front().array;
    EXPECT_TRUE(at::equal(array, at::ones({4}, at::kDouble)));
  }
  EXPECT_TRUE(array.isnan().all().item<bool>());
}

TEST(LocalOperator, EpiloguesRunInOrder) {
  const auto type = RelationType::parse("f64[4]<2>");
  const auto kernel = kernels::table::Kernel{"add", {}}.followed_by({"exp", {}}).followed_by({"negate", {}});
  const Epilogue epilogue(kernel, type);
  OperatorRuns runs;
  const at::Tensor x = at::rand({4}, at::kDouble);
  const auto pieces = epilogue.run({{Box::below({2}), x.clone()}}, runs.context());
  ASSERT_EQ(pieces.size(), 1U);
  EXPECT_TRUE(at::allclose(pieces[0].array, -x.exp()));
}

}  // namespace
}  // namespace joinsum::runtime::execution::local

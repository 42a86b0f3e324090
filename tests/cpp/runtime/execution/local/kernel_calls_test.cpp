#include "runtime/execution/local/kernel_calls.h"

#include <gtest/gtest.h>

#include "runtime/execution/local/operator_runs.h"

namespace joinsum::runtime::execution::local {
namespace {

TEST(KernelCalls, CountFlopsOfAllBatches) {
  OperatorRuns runs;
  const kernels::table::Kernel kernel{"add", {}};
  const KernelCall call(kernel, 1);
  const at::Tensor x = at::ones({5, 4}, at::kDouble), y = at::ones({1, 4}, at::kDouble);
  EXPECT_TRUE(at::equal(call.run({x, y}, runs.context()), at::full({5, 4}, 2, at::kDouble)));
  EXPECT_EQ(runs.flops, 5 * 4);
}

TEST(KernelCalls, ComputeIntoAnArrayWhereOneIsNamed) {
  OperatorRuns runs;
  const kernels::table::Kernel kernel{"negate", {}};
  const KernelCall call(kernel, 0);
  const at::Tensor x = at::ones({4}, at::kDouble);
  EXPECT_EQ(call.run({x}, runs.context(), 0, x).data_ptr(), x.data_ptr());
  EXPECT_TRUE(at::equal(x, at::full({4}, -1, at::kDouble)));
}

TEST(KernelCalls, ResultsFitOnlyArraysOfTheirShapeAndDtype) {
  const kernels::table::Kernel add{"add", {}}, product{"matmul", {}};
  const KernelCall call(add, 0);
  const at::Tensor x = at::ones({3, 4}), row = at::ones({1, 4});
  EXPECT_TRUE(call.fits_result(x, {x, row}));
  EXPECT_FALSE(call.fits_result(row, {x, row}));
  EXPECT_FALSE(call.fits_result(x, {x, row.to(at::kDouble)}));
  EXPECT_FALSE(call.fits_result(row.expand({3, 4}), {row.expand({3, 4}), x}));
  EXPECT_FALSE(KernelCall(product, 0).fits_result(x, {x, x}));
}

}  // namespace
}  // namespace joinsum::runtime::execution::local

#pragma once

#include <vector>

#include "runtime/execution/local/local_operator.h"

namespace joinsum::runtime::execution::local {

/// One kernel, as an operator of a plan calls it on arrays with `batch` leading axes.
class KernelCall {
 public:
  /// The kernel outlives what is made here.
  KernelCall(const kernels::table::Kernel& kernel, int64_t batch);

  const kernels::table::Kernel& kernel() const { return kernel_; }
  bool elementwise() const { return elementwise_; }
  /// Result number `output`, computed into `out` where that is defined; adds to the context's flops.
  at::Tensor run(const std::vector<at::Tensor>& operands, const RunContext& context, int64_t output = 0,
                 const at::Tensor& out = {}) const;
  /// Whether the kernel may write its result into `array`: elementwise, of the broadcast result's shape and dtype, with
  /// memory of its own for each element.
  bool fits_result(const at::Tensor& array, const std::vector<at::Tensor>& operands) const;

 private:
  at::Tensor of_entries(const at::Tensor& sparse, const RunContext& context) const;
  at::Tensor of_sparse_pair(const std::vector<at::Tensor>& operands, const RunContext& context) const;

  const kernels::table::Kernel& kernel_;
  int64_t batch_;
  bool elementwise_;
  bool allocates_;  ///< whether its result is computed into an array of the store
};

}  // namespace joinsum::runtime::execution::local

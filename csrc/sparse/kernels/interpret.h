#pragma once

#include "sparse/kernels/kernel.h"

namespace joinsum::sparse::kernels {

/// How a kernel is interpreted.
struct InterpreterOptions {
  int threads = 1;
  int64_t largest_array = int64_t{1} << 26;  ///< elements of a workspace beyond which it is a hash table
  int64_t entries = 0;                       ///< that the result is expected to have, if that is known
  int64_t range_entries = 4096;  ///< stored entries for which an outermost loop that is aggregated has a range
};

/// Runs a kernel without compiling it. Level l of the result is axis l: the loop output[l]. The result's fill is the
/// aggregate of the body's fill over all coordinates, or its identity where an aggregated loop has none.
///
/// Sorted list and hash levels store the elements that were visited, also where their value equals the fill.
///
/// Results do not depend on the number of threads: ranges of an outermost loop that is aggregated are cut by the
/// entries alone and reduced in their order.
///
/// Raises PlanError where the arguments are not what the kernel names, or the result does not fit.
Tensor interpret(const Kernel& kernel, const KernelArguments& arguments, int threads = 1);
Tensor interpret(const Kernel& kernel, const KernelArguments& arguments, const InterpreterOptions& options);

}  // namespace joinsum::sparse::kernels

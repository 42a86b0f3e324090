#pragma once

#include <vector>

#include "sparse/kernels/kernel.h"
#include "sparse/kernels/nest/loop_plan.h"
#include "sparse/tensor/elements.h"

namespace joinsum::sparse::kernels {

/// How a run writes its result.
enum class ResultWay : uint8_t {
  kDense,     ///< all levels are dense: elements are reduced where they stay
  kInOrder,   ///< the output is a prefix of the loops: each element is finished before the next begins
  kWorkspace  ///< elements are reduced in a workspace, one for each fiber below the outputs that are a prefix
};

ResultWay way_of(const Kernel& kernel);
/// Leading levels of the result that are the outermost loops in their order, but for loops between them that visit one
/// coordinate at most; 0 where the result is dense.
int64_t prefix_of(const Kernel& kernel);
/// The loops down to those of so many leading levels.
int64_t loops_of_prefix(const Kernel& kernel, int64_t levels);

/// The kernel with those loops marked that visit one coordinate at most, as the only operand that walks them has lists
/// of one entry.
Kernel with_single_loops(Kernel kernel, const KernelArguments& arguments);

/// The dtype of a run.
DType dtype_of(const Kernel& kernel, const KernelArguments& arguments);

/// Calls `visit` with a zero of the C++ type in which the elements of a dtype are computed. Raises PlanError for a
/// dtype that kernels do not take.
template <class Visit>
decltype(auto) with_arithmetic(DType dtype, Visit&& visit) {
  if (dtype == DType::kBool) return visit(false);
  return tensor::with_element_type("kernel", dtype, visit);
}

/// A kernel with its arguments, checked, and what its run needs to know before it begins.
struct Prepared {
  const Kernel* kernel = nullptr;
  const KernelArguments* arguments = nullptr;
  DType dtype = DType::kFloat64;
  nest::NestPlan nest;
  ResultWay way = ResultWay::kDense;
  int64_t prefix = 0;          ///< leading levels of the result, as `prefix_of` says
  Dims extents;                ///< of the result's levels
  int64_t workspace_size = 1;  ///< positions below the prefix
  double aggregated = 1;       ///< visits of an element where all coordinates are visited
  bool outermost_is_output = true;
  bool innermost_is_output = false;
  bool appends = false;  ///< in order: each visit of the innermost loops is an element
  int64_t entries = 0;   ///< stored in all operands

  int64_t rank() const { return static_cast<int64_t>(extents.size()); }
};

/// Raises PlanError where the arguments are not what the kernel names: their number, dtype, formats, extents or fills.
Prepared prepared(const Kernel& kernel, const KernelArguments& arguments);

/// The operands' levels below the coordinates of the outermost loop.
std::vector<std::vector<nest::LevelView>> outermost_levels(const Prepared& run);

}  // namespace joinsum::sparse::kernels

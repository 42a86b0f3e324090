#pragma once

#include <string>
#include <vector>

#include "kernels/table/table.h"
#include "relation/relation_type.h"

namespace joinsum::runtime::execution {

/// How an operator goes through one key dimension of a box.
enum class DimMode {
  kBatch,   ///< no axis is linked to it: a leading axis of the arrays
  kWhole,   ///< the kernel treats the parts of the linked axes alike: all parts at once
  kSingle,  ///< key by key
};

/// An operand of a kernel: its type and the result's key dimension that each of its own becomes.
struct ModeOperand {
  const relation::RelationType& type;
  Dims position;
};

/// Letters of each operand's axes and of the result's; elementwise axes are lettered from the right. Nothing for
/// kernels that only work array by array.
std::optional<kernels::table::Subscripts> letters_of(const kernels::table::Kernel& kernel,
                                                     const std::vector<ModeOperand>& operands);

/// A mode for each key dimension of `joined`, the type of kernel's result before any fold. `summed` dimensions are
/// folded by the caller as the kernel folds as part of the same contraction.
std::vector<DimMode> dim_modes(const kernels::table::Kernel& kernel, const std::vector<ModeOperand>& operands,
                               const relation::RelationType& joined, const Dims& summed);

}  // namespace joinsum::runtime::execution

#pragma once

#include <vector>

#include "sparse/kernels/kernel.h"
#include "sparse/tensor/fills.h"

/// What a kernel's body says about absent operands: which visits can be left out.
namespace joinsum::sparse::kernels {

/// The value of each node of the body where every operand is at its fill. A child that annihilates decides, so that
/// zero times an infinity is zero.
std::vector<double> fills_of(const Kernel& kernel);

/// Whether each node of the body is at its fill whatever the operands hold that are not `absent`. A literal is, an
/// absent operand is, and a map is where a child is that decides (fills.h) or where all children are.
std::vector<bool> nodes_at_fill(const Kernel& kernel, const std::vector<bool>& absent);

/// Whether the body is.
bool at_fill(const Kernel& kernel, const std::vector<bool>& absent);

/// Fills in `body_fill` and `required` from the body and the operands.
void derive(Kernel& kernel);

/// Raises PlanError for a kernel that breaks what kernel.h promises, naming loop, operand or node.
void check(const Kernel& kernel);

/// The nodes whose value must be taken from their fill, not computed, where absent operands put a child at a fill that
/// decides: arithmetic would give another value for infinities and NaN. Nodes that no visit finds so are left out.
std::vector<bool> nodes_to_guard(const Kernel& kernel);

}  // namespace joinsum::sparse::kernels

#pragma once

#include "sparse/kernels/kernel.h"

namespace joinsum::sparse::kernels {

/// A kernel and the arguments of one run of it.
struct KernelCall {
  Kernel kernel;
  KernelArguments arguments;
};

/// The call in which operands that are one tensor, read along the same loops, are one operand: as in x·x, the entries
/// of a list are then found once. Those whose innermost level is dense stay, as their elements need no finding.
KernelCall without_repeated_operands(const Kernel& kernel, const KernelArguments& arguments);

}  // namespace joinsum::sparse::kernels

#pragma once

#include "einsum/nodes.h"

namespace joinsum::einsum {

/// The plan of the gradients of a plan: einsums again, so it has a gradient too.
///
/// Its inputs are those of `plan` and, for each output Z, `d_Z` of Z's type: the gradient that arrives there. Its
/// outputs are `d_X` for each X of `of` that an output depends on, of X's type: zeros where it is flat, and where it
/// depends on X by truth values or integers alone. As torch's: ties of max and min share equally (of several operands,
/// at each step of their order), and complex gradients are the conjugate ones. Of prod the second derivative is that of
/// operands without zeros. Raises PlanError for an input that is not there or has no floating dtype, a name that is
/// taken, and a kernel that has no gradient.
Plan gradient(const Plan& plan, const std::vector<std::string>& of);

}  // namespace joinsum::einsum

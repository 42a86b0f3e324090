#pragma once

#include "einsum/transforms/binary.h"

namespace joinsum::einsum::gradients {

/// The plan of the gradients of a plan: einsums again, so it has a gradient too.
///
/// Its inputs are those of `plan` and, for each output Z, `d_Z` of Z's type: the gradient that arrives there. Its
/// outputs are `d_X` for each X of `of` that an output depends on by floating values, of X's type: zeros where it is
/// flat. `paths` are the orders of einsums of several operands, as those of `transforms::binary`. As torch's: the
/// joined elements that tie for a max or min share equally, in every order; so do the two operands that tie in a join
/// by max or min, from the left; complex gradients are the conjugate ones. Of prod the second derivative is that of
/// operands without zeros. Raises PlanError for an input that is not there or has no floating dtype, a name that is
/// taken, and a kernel that has no gradient.
Plan gradient(const Plan& plan, const std::vector<std::string>& of,
              const std::map<std::string, transforms::Path>& paths = {});

/// For each output whether it depends on one of the inputs `of` by floating values: truth values and integers on the
/// way cut the gradient.
std::vector<bool> differentiable_outputs(const Plan& plan, const std::vector<std::string>& of);

}  // namespace joinsum::einsum::gradients

#pragma once

#include <string>

#include "einsum/nodes.h"
#include "ia/nodes.h"
#include "tra/nodes.h"

namespace joinsum::optimizer {

/// How a graph follows from another by a change of extents: labels that were `known` elements are `asked` now. All
/// labels that change do so by one ratio, of which the label of fewest elements gives the terms; both are 1 where none
/// changes.
struct Scaling {
  int64_t known = 1;
  int64_t asked = 1;
  std::string difference = {};  ///< in what else the graphs differ; none: they are one but for that, and for constants
};

/// Compares vertex by vertex: operations, operands, labels, dtypes, ties and names. Numbers that kernels and calls are
/// given may differ (a mean divides by the batch), their work per element may not. No vertex may have two labels that
/// change: the work of each is then affine in the ratio, and so is what a plan costs, up to rounding of parts.
Scaling scaling(const einsum::Plan& known, const einsum::Plan& asked);

/// The plan that does for the program `asked` what `plan` does for `known`, node by node: equal grid, moves and
/// placements, and each operator as `asked` has it. Types are inferred anew. Raises PlanError where the programs differ
/// by more than extents and numbers, in how they are cut, or where `plan` has an operator that is neither one of the
/// program's nor one with the transforms that follow it: rewriting makes others.
ia::Plan carried(const ia::Plan& plan, const tra::Plan& known, const tra::Plan& asked);

/// The program on a site that has everything: each operator once, and no moves.
ia::Plan on_one_site(const tra::Plan& program);

}  // namespace joinsum::optimizer

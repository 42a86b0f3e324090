#pragma once

#include <string>

#include "einsum/nodes.h"
#include "ia/nodes.h"
#include "tra/nodes.h"

namespace joinsum::optimizer::reuse {

/// The change of extents between two graphs that are otherwise equal. All labels that change do so by the ratio
/// `requested` / `planned`, which are the extents of the smallest such label; both are 1 where none changes.
struct Scaling {
  int64_t planned = 1;
  int64_t requested = 1;
  std::string difference = {};  ///< in what else the graphs differ; empty if only extents and constants do
};

/// Compares vertex by vertex: operations, operands, labels, dtypes, ties and names. Numeric arguments of kernels and
/// calls may differ (a mean divides by the batch size), their work per element may not. At most one label of a vertex
/// may change, so that the cost of a plan is affine in the ratio, up to the rounding of parts.
Scaling scaling(const einsum::Plan& planned, const einsum::Plan& requested);

/// The plan that does for the program `requested` what `plan` does for `planned`, node by node: equal grid, moves and
/// placements, and each operator as `requested` has it. Types are inferred anew. Raises PlanError where the programs
/// differ in more than extents and numbers, where their values are cut differently, and where `plan` has an operator
/// that is neither one of the program's nor one fused with the transforms after it: rules create such operators.
ia::Plan reused(const ia::Plan& plan, const tra::Plan& planned, const tra::Plan& requested);

/// The program on a site that has everything: each operator once, and no moves.
ia::Plan on_one_site(const tra::Plan& program);

}  // namespace joinsum::optimizer::reuse

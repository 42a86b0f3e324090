#pragma once

#include <map>

#include "ia/nodes.h"
#include "tra/nodes.h"

namespace joinsum::tra {

/// The local operator that computes `node` on tuples that meet on one site; an input stays one.
ia::Operation local_operation(const Node& node);

/// Translates a logical plan operator by operator (TRA paper, Table 1): Σ becomes Σᴸ over a shuffle to the groups, ⋈
/// becomes ⋈ᴸ with its left operand broadcast, ReKey, λ and Tile become maps, σ a filter, Concat a Σᴸ[concat] over a
/// shuffle. `placements` gives where inputs start, by name; one that is not named is split along its key dimensions in
/// order. `output_placements` gives where outputs end; one that is not named stays where its operator leaves it. A tied
/// output has its input's placement. Source: TRA paper, section 5.1.
ia::Plan lower(const Plan& plan, const ia::Grid& grid, const std::map<std::string, ia::Placement>& placements = {},
               const std::map<std::string, ia::Placement>& output_placements = {});

}  // namespace joinsum::tra

#pragma once

#include <map>
#include <vector>

#include "ia/nodes.h"

namespace joinsum::optimizer {

/// Stands for no key dimension.
constexpr int64_t kNothing = -1;

/// A key dimension that a grid axis may divide: its extent, and the rank that orders it among others.
struct Divisible {
  int64_t extent = 0;
  int64_t rank = 0;
};

/// What is asked of the way in which grid axes divide key dimensions.
struct Cut {
  std::optional<Dims> axes;          ///< the dimension that each axis divides, or none
  std::map<int64_t, int64_t> parts;  ///< parts of some dimensions; a dimension has at most as many as keys

  bool met_by(const ia::Grid& grid, const Dims& extents, const Dims& split) const;
};

/// The number of parts that `split` makes of `dim`, not counting those without keys.
int64_t parts_of(const ia::Grid& grid, const Dims& extents, const Dims& split, int64_t dim);

/// The dimension that each axis of a settled grid placement divides, or none; nothing for other placements.
std::optional<Dims> split_of(const ia::Placement& placement);

/// Ways to give each axis of `grid` one of `dims` (by position) or nothing. A dimension may be divided in more parts
/// than it has keys: relations may start so, and some sites then have nothing. Axes of one size next to each other take
/// dimensions by rank, nothing last. With `divide_all`, only ways that leave no work undivided.
std::vector<Dims> divisions(const ia::Grid& grid, const std::vector<Divisible>& dims, bool divide_all);

/// Of the axes of a grid of more than a few, which of three bundles each belongs to: neighbours, of about equal
/// products. Each axis by itself on other grids.
Dims bundles_of(const ia::Grid& grid);
/// The ways in which all axes of a bundle divide one dimension or nothing.
std::vector<Dims> divisions_in_bundles(const ia::Grid& grid, const std::vector<Divisible>& dims, bool divide_all);

/// Whether some axis divides no work although it could: `split` says which dimension each axis divides, or none, and a
/// dimension that has fewer keys than its axes would make parts is divided by the first of them only.
bool leaves_undivided(const ia::Grid& grid, const Dims& extents, const Dims& split);
/// The same of an operator whose result has this type.
bool leaves_undivided(const ia::PhysicalType& result);

/// The placement that splits axis a of the grid by `split[a]`, or replicates where that is nothing.
ia::Placement placement_of(const Dims& split, const Dims& domains);

/// The move that takes `node` to `target`: nothing, a broadcast where that says it, else a shuffle.
ia::NodePtr move_to(const ia::NodePtr& node, const ia::Placement& target);

/// Grid axes of a broadcast that takes `from` to `to`, if a broadcast does.
std::optional<Dims> broadcast_axes(const ia::Placement& from, const ia::Placement& to);

}  // namespace joinsum::optimizer

#pragma once

#include <map>
#include <vector>

#include "ia/nodes.h"

namespace joinsum::optimizer::division {

/// Stands for no key dimension.
constexpr int64_t kNothing = -1;

/// A key dimension that a grid axis may divide: its extent, and the rank that orders it among others.
struct Divisible {
  int64_t extent = 0;
  int64_t rank = 0;
};

/// A constraint on how grid axes divide key dimensions.
struct DivisionConstraint {
  std::optional<Dims> axes;          ///< the dimension that each axis divides, or none
  std::map<int64_t, int64_t> parts;  ///< parts of some dimensions; a dimension has at most as many as keys

  bool met_by(const ia::Grid& grid, const Dims& extents, const Dims& split) const;
};

/// The number of parts into which `split` divides `dim`, without those that have no keys.
int64_t parts_of(const ia::Grid& grid, const Dims& extents, const Dims& split, int64_t dim);

/// For each grid axis the dimension that it divides, or `kNothing`; empty for pending and scattered placements.
std::optional<Dims> split_of(const ia::Placement& placement);

/// The divisions of `dims`: each axis of `grid` divides one of them (by position) or nothing. A dimension may be
/// divided into more parts than it has keys: relations may start so, and some sites then have nothing. Neighbouring
/// axes of one size are interchangeable, so they take dimensions in the order of their ranks, nothing last.
/// `divide_all`: only divisions that leave no work undivided. Where there are more than ten thousand, the dimensions of
/// the fewest keys are not divided.
std::vector<Dims> divisions(const ia::Grid& grid, const std::vector<Divisible>& dims, bool divide_all);

/// The bundle of each axis of a grid: three bundles of neighbouring axes, of about equal products; on a grid of few
/// axes each axis is a bundle.
Dims bundles_of(const ia::Grid& grid);
/// The divisions in which all axes of a bundle divide the same dimension or nothing.
std::vector<Dims> divisions_in_bundles(const ia::Grid& grid, const std::vector<Divisible>& dims, bool divide_all);

/// Whether some axis divides no work although it could: `split` says which dimension each axis divides, or none, and a
/// dimension that has fewer keys than its axes would make parts is divided by the first of them only.
bool leaves_undivided(const ia::Grid& grid, const Dims& extents, const Dims& split);
/// The same of an operator whose result has this type.
bool leaves_undivided(const ia::PhysicalType& result);

/// The placement that splits axis a of the grid by `split[a]`, or replicates where that is nothing.
ia::Placement placement_of(const Dims& split, const Dims& domains);

}  // namespace joinsum::optimizer::division

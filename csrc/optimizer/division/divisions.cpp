#include "optimizer/division/divisions.h"

#include <algorithm>
#include <cmath>

namespace joinsum::optimizer::division {
namespace {

/// Up to so many divisions, axes of one size are not treated as interchangeable.
constexpr double kMostOrdered = 64;

/// The most divisions that are enumerated; beyond, dimensions of few keys are not divided.
constexpr double kMostDivisions = 10'000;

/// The axes of a grid beyond which they are bundled, and the number of bundles.
constexpr int64_t kMostAxes = 5;
constexpr int64_t kBundles = 3;

/// Enumerates divisions, axis by axis.
class Divide {
 public:
  Divide(const ia::Grid& grid, const std::vector<Divisible>& dims, bool divide_all)
      : grid_(grid), divide_all_(divide_all) {
    for (size_t d = 0; d < dims.size(); ++d) {
      order_.push_back(static_cast<int64_t>(d));
      extents_.push_back(dims[d].extent);
    }
    drop_narrow_dims();
    std::stable_sort(order_.begin(), order_.end(), [&](int64_t a, int64_t b) { return dims[a].rank < dims[b].rank; });
    order_.push_back(kNothing);
    double count = 1;
    for (int64_t a = 0; a < grid.rank(); ++a) count *= static_cast<double>(order_.size());
    every_order_ = count <= kMostOrdered;
  }

  std::vector<Dims> run() {
    extend();
    return std::move(out_);
  }

 private:
  /// Leaves out dimensions of few keys where there are too many divisions.
  void drop_narrow_dims() {
    if (divisions_of(order_.size()) <= kMostDivisions) return;
    std::stable_sort(order_.begin(), order_.end(), [&](int64_t a, int64_t b) { return extents_[a] > extents_[b]; });
    while (order_.size() > 1 && divisions_of(order_.size()) > kMostDivisions) {
      extents_[order_.back()] = 1;  // so that it counts as work that no axis could divide
      order_.pop_back();
    }
  }

  /// The divisions of so many dimensions: those of neighbouring axes of one size are combinations with repetition.
  double divisions_of(size_t dims) const {
    const auto choices = static_cast<double>(dims + 1);
    double count = 1;
    double equal = 0;
    for (int64_t axis = 0; axis < grid_.rank(); ++axis) {
      equal = axis > 0 && grid_.axes[axis - 1] == grid_.axes[axis] ? equal + 1 : 1;
      count *= (choices + equal - 1) / equal;
    }
    return count;
  }

  void extend() {
    const auto axis = static_cast<int64_t>(now_.size());
    if (axis == grid_.rank()) {
      if (!divide_all_ || !leaves_undivided(grid_, extents_, now_)) out_.push_back(now_);
      return;
    }
    const bool again = !every_order_ && axis > 0 && grid_.axes[axis - 1] == grid_.axes[axis];
    const size_t first = again ? layout_in_order(now_.back()) : 0;
    for (size_t i = first; i < order_.size(); ++i) {
      now_.push_back(order_[i]);
      extend();
      now_.pop_back();
    }
  }

  size_t layout_in_order(int64_t dim) const {
    return static_cast<size_t>(std::find(order_.begin(), order_.end(), dim) - order_.begin());
  }

  const ia::Grid& grid_;
  bool divide_all_;
  bool every_order_ = true;
  Dims order_;
  Dims extents_;
  Dims now_;
  std::vector<Dims> out_;
};

/// For each axis the dimension that it divides, or `kNothing`.
Dims divided_dims(const ia::GridPlacement& placement) {
  Dims out;
  for (const ia::AxisState& state : placement.states) {
    const auto* by = std::get_if<ia::Split>(&state);
    out.push_back(by != nullptr ? by->dim : kNothing);
  }
  return out;
}

}  // namespace

int64_t parts_of(const ia::Grid& grid, const Dims& extents, const Dims& split, int64_t dim) {
  int64_t parts = 1;
  for (int64_t axis = 0; axis < grid.rank(); ++axis) {
    if (split[axis] == dim) parts *= grid.axes[axis];
  }
  return std::min(parts, std::max<int64_t>(extents[dim], 1));
}

bool DivisionConstraint::met_by(const ia::Grid& grid, const Dims& extents, const Dims& split) const {
  if (axes && *axes != split) return false;
  return std::all_of(parts.begin(), parts.end(), [&](const auto& constraint) {
    return parts_of(grid, extents, split, constraint.first) == constraint.second;
  });
}

std::optional<Dims> split_of(const ia::Placement& placement) {
  if (placement.grid() == nullptr || placement.pending()) return std::nullopt;
  return divided_dims(*placement.grid());
}

std::vector<Dims> divisions(const ia::Grid& grid, const std::vector<Divisible>& dims, bool divide_all) {
  return Divide(grid, dims, divide_all).run();
}

Dims bundles_of(const ia::Grid& grid) {
  if (grid.rank() <= kMostAxes) return all_dims(grid.rank());
  Dims out;
  double before = 0;  // as logarithms
  const double all = std::log(static_cast<double>(grid.sites()));
  for (const int64_t axis : grid.axes) {
    const double size = std::log(static_cast<double>(axis));
    const auto bundle = static_cast<int64_t>(kBundles * (before + size / 2) / all);
    out.push_back(std::min(bundle, kBundles - 1));
    before += size;
  }
  return out;
}

std::vector<Dims> divisions_in_bundles(const ia::Grid& grid, const std::vector<Divisible>& dims, bool divide_all) {
  const Dims bundles = bundles_of(grid);
  ia::Grid coarse;
  if (!bundles.empty()) coarse.axes.assign(bundles.back() + 1, 1);
  for (int64_t axis = 0; axis < grid.rank(); ++axis) coarse.axes[bundles[axis]] *= grid.axes[axis];
  std::vector<Dims> out;
  for (const Dims& division : divisions(coarse, dims, divide_all)) out.push_back(project(division, bundles));
  return out;
}

bool leaves_undivided(const ia::Grid& grid, const Dims& extents, const Dims& split) {
  Dims parts(extents.size(), 1);
  Dims idle;
  for (int64_t axis = 0; axis < grid.rank(); ++axis) {
    const int64_t size = grid.axes[axis];
    const int64_t dim = split[axis];
    if (dim != kNothing && parts[dim] * size <= extents[dim]) {
      parts[dim] *= size;
    } else {
      idle.push_back(size);
    }
  }
  return std::any_of(idle.begin(), idle.end(), [&](int64_t size) {
    for (size_t d = 0; d < extents.size(); ++d) {
      if (parts[d] * size <= extents[d]) return true;
    }
    return false;
  });
}

bool leaves_undivided(const ia::PhysicalType& result) {
  const ia::GridPlacement* placement = result.placement.grid();
  return placement != nullptr && leaves_undivided(result.grid, result.relation.frontier, divided_dims(*placement));
}

ia::Placement placement_of(const Dims& split, const Dims& domains) {
  ia::GridPlacement out;
  for (const int64_t dim : split) {
    ia::AxisState& state = out.states.emplace_back(ia::Replicated{});
    if (dim != kNothing) state = ia::Split{dim, domains[dim]};
  }
  return out;
}

}  // namespace joinsum::optimizer::division

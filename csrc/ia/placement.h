#pragma once

#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/dims.h"
#include "base/scanner.h"

namespace joinsum::ia {

/// Sites as a grid; site = mixed-radix coordinates, first axis (the slowest link) most significant.
struct Grid {
  Dims axes;

  /// The prime factors of `sites`, ascending; one site is the empty grid.
  static Grid of_sites(int64_t sites);
  int64_t sites() const;
  int64_t rank() const { return static_cast<int64_t>(axes.size()); }
  Dims coordinates(int64_t site) const;
  int64_t site(const Dims& coordinates) const;
  /// For each site its coordinates on the axes `among` as one number, from 0.
  std::vector<int64_t> numbers(const Dims& among) const;
  /// Sites of equal coordinates on the axes `among`, each list ascending, by that number.
  std::map<int64_t, std::vector<int64_t>> classes(const Dims& among) const;
  /// Prints `2x2x3`; one site prints `1`.
  std::string text() const;
  static Grid parse(Scanner& scanner);
  bool operator==(const Grid&) const = default;
};

/// What one grid axis does with a relation.
struct Replicated {
  bool operator==(const Replicated&) const = default;
};
/// The axis divides key dimension `dim`. Owners are computed on `domain` keys of it: the frontier when the relation was
/// placed; a filter may shrink the frontier later without moving anything.
struct Split {
  int64_t dim = 0;
  int64_t domain = 0;
  bool operator==(const Split&) const = default;
};
/// Each coordinate holds a partial value; `kernel` reduces them.
struct Pending {
  std::string kernel;
  bool operator==(const Pending&) const = default;
};
using AxisState = std::variant<Replicated, Split, Pending>;

/// One state per grid axis.
struct GridPlacement {
  std::vector<AxisState> states;
  bool operator==(const GridPlacement&) const = default;
};

/// Each tuple is on one site, but the type does not say on which. With `together`, tuples that agree on these key
/// dimensions are on one site; without it, even tuples of one key may be on several.
struct Scattered {
  std::optional<Dims> together;
  bool operator==(const Scattered&) const = default;
};

/// Where the tuples of a relation are. Callers use the functions below, so that other forms can be added.
class Placement {
 public:
  Placement(GridPlacement grid) : form_(std::move(grid)) {}        // NOLINT: a placement is one of its forms
  Placement(Scattered scattered) : form_(std::move(scattered)) {}  // NOLINT
  static Placement replicated(const Grid& grid);

  const GridPlacement* grid() const { return std::get_if<GridPlacement>(&form_); }
  const Scattered* scattered() const { return std::get_if<Scattered>(&form_); }
  bool fully_replicated() const;
  bool pending() const;
  /// The kernel that reduces the pending axes.
  std::optional<std::string> pending_kernel() const;
  /// Whether tuples that agree on `group` are all on one site (and reduced).
  bool keeps_together(const Dims& group) const;
  /// Grid axes in state S.
  template <class State>
  Dims axes_in() const {
    Dims out;
    if (grid() == nullptr) return out;
    for (size_t a = 0; a < grid()->states.size(); ++a) {
      if (std::holds_alternative<State>(grid()->states[a])) out.push_back(static_cast<int64_t>(a));
    }
    return out;
  }
  /// Grid axes that split key dimension `dim`, in grid order.
  Dims axes_splitting(int64_t dim) const;

  /// Keys below `frontier` that a grid placement puts on the site (its share, whether or not the keys exist).
  Box box(const Grid& grid, int64_t site, const Dims& frontier) const;
  /// Lowest site of those that a grid placement puts `key` on.
  int64_t owner(const Grid& grid, const Key& key) const;

  /// Prints `(0, *, +add)` or `(scattered[0])`; domains of splits are printed where they are not those of `frontier`.
  std::string text(const Dims& frontier) const;
  /// Reads one state per axis of `grid`; domains default to the frontier.
  static Placement parse(Scanner& scanner, const Grid& grid, const Dims& frontier);
  bool operator==(const Placement&) const = default;

 private:
  std::variant<GridPlacement, Scattered> form_;
};

/// Axes on which two placements differ.
Dims differing_axes(const GridPlacement& a, const GridPlacement& b);

/// `shuffle[dims]`: fills the grid's axes in order with the ordered dims, starting over when they run out.
/// Raises where there are no dims.
GridPlacement fill(const Grid& grid, const Dims& dims, const Dims& frontier);

}  // namespace joinsum::ia

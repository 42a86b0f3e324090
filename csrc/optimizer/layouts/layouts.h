#pragma once

#include <deque>
#include <map>
#include <unordered_map>
#include <vector>

#include "ia/type.h"

namespace joinsum::optimizer::layouts {

/// A layout of the values of one relation type; there is one object for all of them.
struct Layout {
  ia::PhysicalType type;
  size_t relation = 0;   ///< number of the relation type
  size_t placement = 0;  ///< number of the placement: equal placements have equal ones
  size_t number = 0;     ///< among the layouts of the relation type
};

/// The layouts on one grid: one object for each. A grid placement that is not pending determines what each site holds,
/// so types of one relation and one such placement have one layout; with other placements they have one layout if sites
/// hold the same.
class Layouts {
 public:
  explicit Layouts(ia::Grid grid) : grid_(std::move(grid)) {}
  Layouts(const Layouts&) = delete;
  Layouts& operator=(const Layouts&) = delete;

  const ia::Grid& grid() const { return grid_; }
  /// Equal types of as many entries have equal numbers: moves of a sparse relation cost what it has.
  size_t number(const relation::RelationType& relation);
  /// Null where the relation cannot be placed so.
  const Layout* find(size_t relation, const ia::Placement& placement);
  /// Raises where the relation cannot be placed so.
  const Layout* placed(size_t relation, const ia::Placement& placement);
  /// The layout of values of this type.
  const Layout* of(const ia::PhysicalType& type);
  const Layout* replicated(size_t relation) { return placed(relation, ia::Placement::replicated(grid_)); }

 private:
  struct Relation {
    relation::RelationType type;
    size_t layouts = 0;
    std::unordered_map<size_t, const Layout*> reduced;              ///< by placement; null where there is none
    std::unordered_map<size_t, std::vector<const Layout*>> others;  ///< by placement
  };
  size_t number_of(const ia::Placement& placement);
  const Layout* add(ia::PhysicalType type, size_t relation, size_t placement);

  ia::Grid grid_;
  std::deque<Relation> relations_;
  std::map<Dims, std::vector<size_t>> by_frontier_;
  std::deque<ia::Placement> placements_;
  std::unordered_map<uint64_t, std::vector<size_t>> by_hash_;
  std::deque<Layout> layouts_;
};

}  // namespace joinsum::optimizer::layouts

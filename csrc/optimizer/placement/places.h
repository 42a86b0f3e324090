#pragma once

#include <deque>
#include <map>
#include <unordered_map>
#include <vector>

#include "ia/type.h"

namespace joinsum::optimizer {

/// A layout of the values of one relation type; there is one object for all of them.
struct Place {
  ia::PhysicalType type;
  size_t relation = 0;   ///< number of the relation type
  size_t placement = 0;  ///< number of the placement: equal placements have equal ones
  size_t number = 0;     ///< among the places of the relation type
};

/// Layouts on one grid, each made once. A settled placement on the grid says what each site holds, so types of one
/// relation and one such placement are one place; others are where they hold the same.
class Places {
 public:
  explicit Places(ia::Grid grid) : grid_(std::move(grid)) {}
  Places(const Places&) = delete;
  Places& operator=(const Places&) = delete;

  const ia::Grid& grid() const { return grid_; }
  /// Equal types have equal numbers.
  size_t number(const RelationType& relation);
  /// Null where the relation cannot be placed so.
  const Place* find(size_t relation, const ia::Placement& placement);
  /// Raises where the relation cannot be placed so.
  const Place* placed(size_t relation, const ia::Placement& placement);
  /// The place of values of this type.
  const Place* of(const ia::PhysicalType& type);
  const Place* replicated(size_t relation) { return placed(relation, ia::Placement::replicated(grid_)); }

 private:
  struct Relation {
    RelationType type;
    size_t places = 0;
    std::unordered_map<size_t, const Place*> settled;              ///< by placement; null where there is none
    std::unordered_map<size_t, std::vector<const Place*>> others;  ///< by placement
  };
  size_t number_of(const ia::Placement& placement);
  const Place* add(ia::PhysicalType type, size_t relation, size_t placement);

  ia::Grid grid_;
  std::deque<Relation> relations_;
  std::map<Dims, std::vector<size_t>> by_frontier_;
  std::deque<ia::Placement> placements_;
  std::unordered_map<uint64_t, std::vector<size_t>> by_hash_;
  std::deque<Place> places_;
};

}  // namespace joinsum::optimizer

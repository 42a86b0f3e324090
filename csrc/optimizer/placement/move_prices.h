#pragma once

#include <limits>
#include <unordered_map>
#include <vector>

#include "ia/type.h"
#include "optimizer/score.h"

namespace joinsum::optimizer {

/// The price of what may not be.
constexpr double kForbidden = std::numeric_limits<double>::infinity();

/// Whether two types of a relation lie alike. A settled placement on the grid says what each site holds, others do not.
bool lie_alike(const ia::PhysicalType& a, const ia::PhysicalType& b);

/// Prices moves between two types of one relation. Under `seconds` on more than a few sites it takes the busiest
/// receiver for the busiest link, and leaves out the folds of partials: never more than a move takes.
class MovePrices {
 public:
  MovePrices(Objective objective, const Cluster& cluster) : objective_(objective), cluster_(cluster) {}

  double operator()(const ia::PhysicalType& from, const ia::PhysicalType& to) const;

  /// Places of a value, by their numbers among those of all values of its relation type.
  struct Numbers {
    size_t relation = 0;
    std::vector<size_t> places;
  };
  Numbers number(const RelationType& relation, const std::vector<ia::PhysicalType>& places);
  /// Of a move from a value's place to another; for values of one relation type each is computed once.
  double between(const Numbers& numbers, size_t from, size_t to);

 private:
  struct Relation {
    RelationType type;
    std::vector<ia::PhysicalType> places;
    std::vector<std::vector<double>> prices;  ///< by the numbers of both places
  };

  Objective objective_;
  const Cluster& cluster_;
  std::vector<Relation> relations_;
};

}  // namespace joinsum::optimizer

#pragma once

#include <string>
#include <vector>

#include "ia/type.h"
#include "optimizer/cost/cost.h"

namespace joinsum::optimizer::cost {

/// The cost that a planner minimises: the number of its row in `objectives()`.
enum class Objective { kPaperFloats, kWireBytes, kSeconds };

/// A row of the table of objectives: all that planners need to know of one.
struct ObjectiveRow {
  Objective objective;
  std::string name;         ///< `wire_bytes`: how users choose it, and the attribute of a cost that holds its value
  std::string unit;         ///< of a value: `floats`, `B`, `s`
  std::string description;  ///< one sentence
  bool needs_cluster;       ///< whether values depend on the cluster's rates
  /// Whether local work has a price. Where it has none, to repeat work that could be divided is free and would always
  /// win; so planners then divide all contractions, rank plans that repeat work last, and break ties by flops.
  bool prices_work;
  /// Whether a site may drop replicas for nothing. If not, no input starts replicated just because it may.
  bool drops_replicas_freely;
  /// Whether moves are priced by their target alone, so that all readers take a value from its staging layout.
  bool always_stages;
  bool whole_numbers;  ///< whether values are whole numbers, so that a bound may be rounded up
  double (*value)(const Figures& figures);
  /// The price of a move between two types of one relation; `to` is a reduced grid placement.
  double (*move_price)(const ia::PhysicalType& from, const ia::PhysicalType& to, const Cluster& cluster);
};

/// All objectives, in the order of the enumeration. To add one is to add its enumerator and its row.
const std::vector<ObjectiveRow>& objectives();
const ObjectiveRow& row_of(Objective objective);

/// The objective of that name; PlanError for another one.
Objective objective_named(const std::string& name);
const std::string& name_of(Objective objective);

/// The value that the objective gives a cost.
inline double value_of(const Figures& cost, Objective objective) { return row_of(objective).value(cost); }

/// The most by which rounding, and the small weight of flops in ties, lets two equal values differ.
double slack_of(double value, Objective objective);
/// A bound on values of the objective that is safe against such rounding.
double safe_bound(double bound, double value, Objective objective);

}  // namespace joinsum::optimizer::cost

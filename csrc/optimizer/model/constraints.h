#pragma once

#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "optimizer/division/divisions.h"
#include "tra/nodes.h"

namespace joinsum::optimizer::model {

/// The placements in which inputs of a logical plan start. An input that is not named may start anywhere at no cost.
using InputPlacements = std::map<std::string, ia::Placement>;

/// The placements from which all readers of a value must take it.
using Pins = std::unordered_map<const tra::Node*, ia::Placement>;

/// A warm start: a partial placement, which the search completes.
struct PartialPlacement {
  InputPlacements inputs = {};
  Pins pins = {};           ///< staging placements of values that nothing else pins
  bool everywhere = false;  ///< whether every site does all the work
};

/// The constraints on placements of a logical plan.
struct PlacementConstraints {
  InputPlacements inputs = {};
  Pins pins = {};
  std::unordered_map<const tra::Node*, division::DivisionConstraint> work =
      {};                                                           ///< on how joins and maps divide their tuples
  std::map<std::string, division::DivisionConstraint> starts = {};  ///< on inputs, by name
  std::map<std::string, division::DivisionConstraint> ends = {};    ///< on outputs, by name
  std::vector<PartialPlacement> warm_starts = {};                   ///< partial plans that the search completes too
  double byte_price = 0;  ///< added to the cost for each byte on the site that holds most of a value
  /// Whether to spend more time on many operators: all axes of the grid divide independently, not in bundles, and
  /// solvers look at more entries.
  bool thorough = false;
  bool may_repeat = false;  ///< whether dividable work may be repeated under every objective

  const division::DivisionConstraint* work_of(const tra::Node* node) const {
    const auto found = work.find(node);
    return found == work.end() ? nullptr : &found->second;
  }
  const ia::Placement* pin_of(const tra::Node* node) const {
    const auto found = pins.find(node);
    return found == pins.end() ? nullptr : &found->second;
  }
};

/// Whether axes of the grid divide in bundles: where there are many operators and many axes, unless the constraints ask
/// for thoroughness.
bool in_bundles(const tra::Plan& plan, const PlacementConstraints& constraints, const ia::Grid& grid);

}  // namespace joinsum::optimizer::model

#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "optimizer/eindecomp/graph.h"

namespace joinsum::optimizer::eindecomp {

/// What pins leave to choose from.
struct Pinned {
  /// Per operation its viable vectors that satisfy its pins.
  std::vector<std::vector<Dims>> vectors;
  /// Per operation the parts of each label, 0 where it is free.
  std::vector<Dims> parts;
  /// Per input how it is stored, if that is pinned.
  std::vector<std::optional<Dims>> inputs;
};

/// Applies the pins of a checked graph to the viable vectors of its operations. Raises PlanError for a pin that names
/// nothing, for part counts of inputs that are no powers of two or do not divide their extents, and for pins that
/// contradict each other or leave an operation no viable vector: then with the smallest set of pins that does.
Pinned apply_pins(const einsum::json::JsonGraph& graph, const std::vector<PartitionPin>& pins, int64_t calls);

}  // namespace joinsum::optimizer::eindecomp

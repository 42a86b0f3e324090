#pragma once

#include <optional>

#include "ia/nodes.h"
#include "tra/nodes.h"

namespace joinsum::optimizer::verification {

/// A plan and its program over arrays that are small enough to run both by their definitions.
struct Small {
  ia::Plan plan;
  tra::Plan program;
};

/// Both with other extents: keys, frontiers, placements and the links between axes and keys stay, node by node, and
/// parts of equal extent keep equal extents. Nothing where no choice of extents keeps all that (a program may add
/// extents up, say), or where the keys alone are too many.
std::optional<Small> shrunk(const ia::Plan& plan, const tra::Plan& program);

}  // namespace joinsum::optimizer::verification

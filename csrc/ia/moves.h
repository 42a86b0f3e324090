#pragma once

#include <optional>

#include "ia/nodes.h"

namespace joinsum::ia {

/// The move that takes `node` to `target`: nothing, a broadcast where that says it, else a shuffle.
NodePtr move_to(const NodePtr& node, const Placement& target);

/// Grid axes of a broadcast that takes `from` to `to`, if a broadcast does.
std::optional<Dims> broadcast_axes(const Placement& from, const Placement& to);

}  // namespace joinsum::ia

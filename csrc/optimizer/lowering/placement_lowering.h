#pragma once

#include <unordered_map>

#include "optimizer/model/vertices.h"

namespace joinsum::optimizer::lowering {

/// The nodes that operators of a logical plan have become, including joins that run below a sum.
using LoweredNodes = std::unordered_map<const tra::Node*, ia::NodePtr>;

/// Whether a replicated vertex is an input that may start in the layout that its readers require: its start is not
/// constrained, and the objective drops replicas freely.
bool may_start_as_read(const model::PlacementModel& model, const model::Vertex& vertex);

/// The physical plan of a choice of strategies and staging layouts; its nodes are added to `nodes`.
ia::Plan lowered(const model::PlacementModel& model, const model::Choice& choice, LoweredNodes& nodes);

}  // namespace joinsum::optimizer::lowering

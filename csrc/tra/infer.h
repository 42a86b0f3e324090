#pragma once

#include "tra/nodes.h"

namespace joinsum::tra {

/// Type of `operation` over inputs of these types; raises PlanError `operator: what is wrong: name=value`.
RelationType infer(const Operation& operation, const std::vector<RelationType>& inputs);

}  // namespace joinsum::tra

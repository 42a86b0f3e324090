#pragma once

#include "ia/nodes.h"

namespace joinsum::ia {

/// Type of `operation` over inputs of these types; raises PlanError `operator: what is wrong: name=value`.
PhysicalType infer(const Operation& operation, const std::vector<const PhysicalType*>& inputs);

/// The type of a call of one of torch's operators.
PhysicalType infer_call(const LocalCall& op, const std::vector<const PhysicalType*>& inputs);

}  // namespace joinsum::ia

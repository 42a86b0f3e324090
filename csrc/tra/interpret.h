#pragma once

#include <map>

#include "relation/tuples.h"
#include "tra/nodes.h"

namespace joinsum::tra {

using Relation = relation::Tuples;

/// Runs a plan on lists of tuples by the definitions of section 3.1, naively: the oracle of every other way. Results
/// ascend by key, equal keys by array. Also checks each node's result against its type.
std::map<std::string, Relation> interpret(const Plan& plan, const std::map<std::string, Relation>& inputs,
                                          const kernels::table::Scalars& scalars = {});

}  // namespace joinsum::tra

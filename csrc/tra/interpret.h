#pragma once

#include <map>

#include "kernels/reference/reference.h"
#include "tra/nodes.h"

namespace joinsum::tra {

/// A logical relation, tuple by tuple; a bag.
using Relation = std::vector<std::pair<Key, kernels::reference::Array>>;

/// Runs a plan on lists of tuples by the definitions of section 3.1, naively: the oracle of every other way. Results
/// ascend by key, equal keys by array. Also checks each node's result against its type.
std::map<std::string, Relation> interpret(const Plan& plan, const std::map<std::string, Relation>& inputs,
                                          const kernels::table::Scalars& scalars = {});

}  // namespace joinsum::tra

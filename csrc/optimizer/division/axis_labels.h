#pragma once

#include <vector>

#include "einsum/nodes.h"

namespace joinsum::optimizer::division {

/// The labels of the axes of each tensor that a vertex meets, its operands and then its result; those of an input are
/// the numbers of its axes.
std::vector<einsum::Labels> axis_labels(const einsum::Node& node);

}  // namespace joinsum::optimizer::division

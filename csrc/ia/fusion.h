#pragma once

#include <unordered_set>

#include "ia/nodes.h"

namespace joinsum::ia {

/// Joins that the executor never materialises: a contraction whose only use is a local fold by the kernel that it folds
/// with is computed with it, as one contraction over each pair of blocks. Both executor and cost ask here.
std::unordered_set<const Node*> fused_joins(const Plan& plan);

/// Number of uses of each node in a plan, outputs included.
std::unordered_map<const Node*, int64_t> use_counts(const Plan& plan);

}  // namespace joinsum::ia

#pragma once

#include <unordered_set>

#include "optimizer/placement/memory.h"

namespace joinsum::optimizer {

/// Seconds that the operators of a logical plan take on so many sites, without moves: each by itself, divided among the
/// sites as it takes least. No plan takes less, whatever grid the sites form. `in_any_order` are operators that other
/// plans have others for: they count nothing.
double least_work_seconds(const tra::Plan& plan, int64_t sites, const Cluster& cluster,
                          const std::unordered_set<const tra::Node*>& in_any_order);

}  // namespace joinsum::optimizer

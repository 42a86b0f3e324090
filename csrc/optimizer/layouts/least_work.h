#pragma once

#include <unordered_set>

#include "optimizer/layouts/placement_cache.h"

namespace joinsum::optimizer::layouts {

/// A lower bound on the seconds of every plan of a program on so many sites, whatever grid they form: the work of its
/// operators without moves, each divided among the sites in the fastest way. Operators in `in_any_order` count nothing,
/// because another order of contraction replaces them.
double least_work_seconds(const tra::Plan& plan, int64_t sites, const cost::Cluster& cluster,
                          const std::unordered_set<const tra::Node*>& in_any_order);

}  // namespace joinsum::optimizer::layouts

#pragma once

#include <functional>
#include <string>
#include <vector>

#include "sparse/logical/elimination.h"

namespace joinsum::sparse::logical {

/// Bounds of one query, which becomes one kernel.
struct KernelSize {
  int64_t repeated = 128;  ///< occurrences of indices in its operands, less the distinct indices
  int64_t operands = 60;
};

/// Splits queries that are larger: the cheapest product of factors, or another part of the expression, becomes a query
/// of its own, whose result the rest reads. Nothing is left to split in a map of two operands, and in a sum of fills
/// that are both infinities. `next_name` names the queries.
/// Source: Galley's implementation, which bounds what is compiled.
std::vector<LogicalQuery> split_queries(Terms& terms, std::vector<LogicalQuery> queries, const KernelSize& most,
                                        const LogicalCost& cost, const std::function<std::string()>& next_name);

}  // namespace joinsum::sparse::logical

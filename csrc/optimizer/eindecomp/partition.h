#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "optimizer/eindecomp/graph.h"

namespace joinsum::optimizer::eindecomp {

struct PartitionLimits {
  /// Most entries of one elimination; see `min_sum::Limits`.
  double table_entries = 2e7;
  /// Most entries, 8 bytes each, of all tables over pairs of vertices that are held at once.
  double pair_entries = 1e8;
  /// After so many seconds the best plan so far is returned; the tables of costs are computed in any case.
  std::optional<double> seconds = {};
};

/// How a vertex runs, and the elements that it moves.
struct VertexPartition {
  Dims parts;  ///< by label, in the order of `all_labels`
  double join;
  double aggregation;
  std::vector<double> repartitions;  ///< by operand; 0 for an input whose layout is free
};

struct PartitionPlan {
  std::vector<VertexPartition> vertices;
  double cost = 0;         ///< elements moved: the sum over the vertices
  double lower_bound = 0;  ///< no plan costs less
  bool exact = false;      ///< the plan is proven best: `lower_bound` is `cost`
  std::string method;      ///< that found it: `elimination` or `linearisation`
  int64_t tables = 0;      ///< over vertices and over moves
  int64_t distinct_tables = 0;
};

/// Finds a partition vector for every vertex, so that together they move the fewest elements by the EinDecomp paper's
/// worst-case count, each vertex in `calls` kernel calls (see `viable_vectors`).
///
/// The cost is a sum over vertices and over operands that other operations compute, so the best plan of any graph is a
/// min-sum problem: variable elimination finds it where the graph is narrow enough. Otherwise that gives a lower bound
/// and a plan, `linearise` another plan, and the cheaper one is returned. Inputs are stored in
/// any layout at no cost, unless a pin says how. The same graph and limits give the same plan if there is no deadline.
///
/// Raises PlanError for a wrong graph, `calls` outside 1 to 2^30, and pins that cannot be met.
/// Source: EinDecomp paper, sections 7 and 8; the elimination in place of its recurrence is ours.
PartitionPlan partition(const einsum::json::JsonGraph& graph, const std::vector<PartitionPin>& pins, int64_t calls,
                        const PartitionLimits& limits = {});

}  // namespace joinsum::optimizer::eindecomp

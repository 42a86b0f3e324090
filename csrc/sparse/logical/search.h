#pragma once

#include <limits>
#include <map>
#include <string>
#include <vector>

#include "sparse/logical/dependencies.h"
#include "sparse/logical/elimination.h"
#include "sparse/logical/splitting.h"

namespace joinsum::sparse::logical {

enum class Search : uint8_t { kGreedy, kBranchAndBound };

struct LogicalOptions {
  EstimatorPtr estimator = chain_estimator();
  LogicalCost cost = {};
  Absorption absorption = Absorption::kAbsorb;
  Search search = Search::kGreedy;
  bool cover = true;               ///< whether queries may also have factors all of whose indices they have anyway
  bool whole = false;              ///< whether an aggregate over an expression without one is a single query
  bool finite = true;              ///< whether no element of a tensor is an infinity
  bool distribute = true;          ///< whether products of sums are also tried as sums of products, of finite elements
  Dependencies dependencies = {};  ///< by which joins of a tensor with itself are read as one
  int64_t most_terms = 64;         ///< inputs that an expression may have after that
  /// From which on a greedy search gives up; used within a search of distributions.
  double most_cost = std::numeric_limits<double>::infinity();
  KernelSize kernel_size = {};    ///< above which queries are split
  int64_t most_states = 100'000;  ///< that branch and bound keeps, fewer of cheap queries; beyond, greedy stands
};

/// The queries that compute one source query, in order; the last one bears its name.
struct QueryPlan {
  std::vector<LogicalQuery> queries;
  /// Indices as they are eliminated, each with the last of its paths, without those that are absorbed.
  std::vector<int64_t> order;
  double cost = 0;
  IndexSpace space;
  StatisticsPtr result;      ///< over axis numbers of the output
  double fill = 0;           ///< of the result
  bool distributed = false;  ///< whether products of sums became sums of products
  bool complete = true;      ///< false where branch and bound gave up, so that the order is the greedy one
};

/// Plans one query. `sources` are the tensors and earlier results that it may read, `names` gives names to the queries
/// beside the last one: `<name>_1`, ... that `taken` lacks.
/// Source: Galley, section 5.
QueryPlan plan_query(const Query& query, const IndexSpace& space, const Terms::Sources& sources,
                     const std::vector<std::string>& taken, const LogicalOptions& options);

/// The cost of eliminating in this order of index names; raises PlanError where the order is not a possible one.
double elimination_cost(const Query& query, const IndexSpace& space, const Terms::Sources& sources,
                        const std::vector<std::string>& order, const LogicalOptions& options);

/// Tensors, and results that are planned, as sources of terms.
Terms::Source source_of(const InputTensor& tensor, const Estimator& estimator);

}  // namespace joinsum::sparse::logical

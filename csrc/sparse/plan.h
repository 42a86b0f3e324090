#pragma once

#include <map>
#include <string>
#include <vector>

#include "sparse/logical/dependencies.h"
#include "sparse/physical/physical.h"

namespace joinsum::sparse {

using kernels::Kernel;
using kernels::KernelArguments;
using logical::LogicalOptions;
using logical::LogicalQuery;
using logical::QueryPlan;
using logical::source_of;
using logical::TermPtr;
using logical::Terms;
using physical::FormatCutoffs;
using physical::LoopOrder;
using physical::PhysicalOptions;
using physical::PhysicalQuery;
using physical::PlannedAccess;
using physical::StoredTensors;
using program::Distinct;
using program::Expression;
using program::ExpressionPtr;
using program::InputTensor;
using program::Program;
using program::Query;
using program::Readable;
using statistics::contains;
using statistics::Estimator;
using statistics::EstimatorPtr;
using statistics::IndexSet;
using statistics::members_of;
using statistics::only;
using tensor::Level;
using tensor::LevelFormat;
using tensor::Tensor;

struct PlanOptions {
  LogicalOptions logical = {};
  PhysicalOptions physical = {};
  bool dependencies = false;  ///< whether plans use the functional dependencies of tensors
};

/// The plan of one source query: its logical queries, and the kernel of each.
struct PlannedQuery {
  QueryPlan logical;
  std::vector<PhysicalQuery> physical;
};

/// All decisions on a program, as data. Source: Galley, figure 3.
struct ProgramPlan {
  std::vector<PlannedQuery> queries;                ///< of each source query
  double cost = 0;                                  ///< of all logical queries
  std::map<std::string, std::string> same_as = {};  ///< a query, and the earlier one that computes the same
  PlanOptions options = {};                         ///< by which it was planned
  StoredTensors stored = {};                        ///< how the program's tensors are stored
};

/// Plans the queries of a program in their order, each with the statistics of the earlier ones' results.
ProgramPlan plan(const Program& program, const PlanOptions& options);

/// Functional dependencies that plans of a program take for granted: of each tensor that a query reads again, the axes
/// that determine others, and these.
logical::Dependencies dependencies_of(const Program& program);

/// The tensors of a program as sources of terms.
Terms::Sources sources_of(const Program& program, const Estimator& estimator);

/// The tensors of a program as they are stored, for which a kernel pays when it reads them in another order.
StoredTensors stored_tensors(const Program& program);

/// Classes of queries that are one, of two members at least.
std::vector<std::vector<std::string>> classes_of(const ProgramPlan& plan);

/// `estimate` of the entries of an expression over a program's tensors, taken as it is written.
double estimate(const ExpressionPtr& expression, const Program& program, const EstimatorPtr& estimator);

/// The cost of a query as a single kernel in this order of loops: its iterations, and what is transposed.
LoopOrder order_costs(const Program& program, size_t query, const std::vector<std::string>& loops,
                      const EstimatorPtr& estimator);

}  // namespace joinsum::sparse

#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "sparse/kernels/run.h"
#include "sparse/plan.h"

namespace joinsum::sparse {

using kernels::RunOptions;
using physical::kernel_of_values;

using TensorPtr = std::shared_ptr<const Tensor>;

/// What a run does beside computing the results of the source queries.
struct RunRequest {
  bool adapts = true;   ///< kernels that read results are planned again with their true statistics
  bool every = false;   ///< the results of all logical queries, with axes in the order of their outputs
  bool counts = false;  ///< true entries of dense results are their elements that differ from the fill
};

/// Runs the kernels of a plan over the tensors of its program. Tensors that a kernel reads in another order or in other
/// levels are converted once, for all plans.
class Runner {
 public:
  Runner(const Program& program, const ProgramPlan& plan) : program_(program), plan_(plan) {}

  struct Seconds {
    double plan = 0;  ///< to plan kernels again
    double compile = 0;
    double run = 0;
  };
  /// The results of the source queries, by name; their axes are those of the queries' outputs. `given` are tensors that
  /// stand for those of the program, of the same shape and fill. Raises PlanError for a tensor of which only statistics
  /// are known.
  std::map<std::string, TensorPtr> run(const std::map<std::string, TensorPtr>& given, const RunOptions& options,
                                       const RunRequest& request = {});

  /// Of the last run.
  const Seconds& seconds() const { return seconds_; }
  /// Queries whose kernels ran compiled in the last run.
  const std::vector<std::string>& compiled() const { return compiled_; }
  /// Queries whose kernels were planned with true statistics.
  const std::vector<std::string>& replanned() const { return replanned_; }

  /// Stored entries of each query's result in the last run; with `counts` those that differ from the fill.
  const std::map<std::string, double>& true_entries() const { return true_entries_; }

 private:
  TensorPtr input(const std::string& name, const std::map<std::string, TensorPtr>& given) const;
  /// Whether all elements of the run's tensors are finite.
  bool finite(const std::map<std::string, TensorPtr>& given);
  TensorPtr operand(const PlannedAccess& access, const std::map<std::string, TensorPtr>& results,
                    const std::map<std::string, TensorPtr>& given, bool stored_only);
  /// A query's kernel as it is planned for results of certain numbers of entries.
  struct Adapted {
    LogicalQuery logical;
    PhysicalQuery physical;
  };

  /// The kernel of a query that reads results, planned again with their true statistics where that may pay.
  const Adapted* adapted(const PlannedQuery& query, size_t number, const std::map<std::string, TensorPtr>& results);
  Adapted planned_again(const PlannedQuery& query, size_t number,
                        const std::map<std::string, TensorPtr>& results) const;
  /// The result of a query that maps the values of a tensor or a result, in its levels; null where it has levels of its
  /// own.
  TensorPtr mapped(const LogicalQuery& logical, const PhysicalQuery& physical,
                   const std::map<std::string, TensorPtr>& results, const std::map<std::string, TensorPtr>& given,
                   const RunOptions& options);
  /// Runs a kernel and notes how.
  Tensor run_kernel(const std::string& name, const kernels::Kernel& kernel, const kernels::KernelArguments& arguments,
                    RunOptions options);
  TensorPtr run_query(const PlannedQuery& query, size_t number, const std::map<std::string, TensorPtr>& results,
                      const std::map<std::string, TensorPtr>& given, RunOptions options, bool adapts);

  const Program& program_;
  struct LastRun {
    double interpreted_seconds = 0;
    int64_t entries = 0;  ///< of the result
  };

  const ProgramPlan& plan_;
  /// By query, and by the numbers of entries of the results that it reads, within a factor of two.
  std::map<std::pair<std::string, std::vector<int64_t>>, Adapted> adapted_;
  std::map<std::string, double> true_entries_;
  std::map<std::string, LastRun> last_runs_;  ///< of each query's kernel
  std::optional<bool> finite_;                ///< in this run, once asked for
  Seconds seconds_;
  std::vector<std::string> compiled_;
  std::vector<std::string> replanned_;
};

/// The tensor with one level for each group of axes, in this order: of elements that are equal along the axes of each
/// group. Each level is dense, a bytemap or a sorted list, by the density that it has; with `stored_only` the last one
/// is dense only where it is full, as an infinity times a zero that is stored is no number.
Tensor arranged(const Tensor& tensor, const std::vector<std::vector<int64_t>>& groups, const FormatCutoffs& cutoffs,
                bool stored_only = false);

}  // namespace joinsum::sparse

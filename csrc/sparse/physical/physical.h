#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sparse/kernels/kernel.h"
#include "sparse/logical/search.h"
#include "sparse/physical/loops.h"

namespace joinsum::sparse::physical {

using kernels::BodyNode;
using kernels::Kernel;
using kernels::Loop;
using kernels::Operand;
using logical::QueryPlan;
using tensor::LevelFormat;

/// From which density on a level is stored as a bytemap, and as a dense one.
struct FormatCutoffs {
  double bytemap = 0.05;
  double dense = 0.5;
  double largest_dense = 1 << 28;  ///< elements down to a level that is dense or a bytemap
};

/// The format of each level of a result. `entries_of_prefix[d]` are the entries of its projection on the first d+1 of
/// `output_order`; `shape[d]` is the extent of output_order[d]. A level is a sorted list where the output's indices so
/// far are the outermost loops in the same order, else a hash table. Source: Galley, section 6.2.
std::vector<LevelFormat> choose_formats(const Dims& shape, const std::vector<double>& entries_of_prefix,
                                        const std::vector<std::string>& output_order,
                                        const std::vector<std::string>& loop_order, const FormatCutoffs& cutoffs);

enum class Protocol : uint8_t { kWalk, kLookup };

/// How a kernel reads one operand.
struct PlannedAccess {
  std::string tensor;
  std::vector<int64_t> indices;                     ///< in the order of the loops
  std::vector<Protocol> protocols;                  ///< of each of them
  std::vector<int64_t> axes;                        ///< of the tensor, or of the output of the query, for each of them
  std::vector<std::vector<int64_t>> diagonal = {};  ///< axes of each index where an index stands twice; else empty
  bool transposed = false;
};

/// A logical query as one loop nest. Source: Galley, section 6.
struct PhysicalQuery {
  std::string name;
  std::vector<int64_t> loops;
  std::vector<double> iterations;
  std::vector<int64_t> output;
  std::vector<LevelFormat> formats;
  std::vector<PlannedAccess> accesses;
  std::vector<std::string> transposed;
  double cost = 0;
  bool optimal_order = true;
  bool maps_values = false;  ///< of one tensor or result, in whose levels they may stay
  std::vector<Loop> walks;   ///< of each loop, the accesses that walk and those that look up
};

struct PhysicalOptions {
  FormatCutoffs cutoffs = {};
  int64_t most_loops = 10;
  std::map<std::string, std::vector<LevelFormat>> formats = {};  ///< of results by name, in place of chosen ones
};

/// Operands of a query's body, from left to right. `stored` knows the tensors; other names are results.
std::vector<Access> accesses_of(const TermPtr& body, const StoredTensors& stored);

/// Plans the kernels of one source query: orders of loops, formats of results, and which operand leads each loop. The
/// outputs of queries between get the order in which their reader wants them.
std::vector<PhysicalQuery> plan_kernels(QueryPlan& plan, EstimatorPtr estimator, const StoredTensors& stored,
                                        const PhysicalOptions& options);

/// Plans the kernel of one query again, whose operands are all stored: none is made in the order that it wants.
PhysicalQuery plan_kernel_again(const Terms& terms, const LogicalQuery& query, const StoredTensors& stored,
                                const PhysicalOptions& options);

/// The kernel of a planned query, with the formats of its operands, whose dtype is that of the program.
Kernel kernel_of(const LogicalQuery& logical, const PhysicalQuery& physical,
                 const std::vector<std::vector<LevelFormat>>& formats_of_operands, DType dtype);
/// The kernel of a query that maps values, over these as an array.
Kernel kernel_of_values(const LogicalQuery& logical, DType dtype);

}  // namespace joinsum::sparse::physical

#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/dims.h"
#include "sparse/program/expression.h"
#include "sparse/tensor/tensor.h"

namespace joinsum::sparse::program {

using tensor::Tensor;

/// The largest number of distinct coordinates along `axes` that share their coordinates along `given`: D(axes | given).
struct Degree {
  std::vector<int64_t> axes;
  std::vector<int64_t> given;
  double count = 0;
};

/// A named input: its stored elements, or statistics of them only, with which a program can be planned but not run.
struct InputTensor {
  Dims shape;
  double fill = 0;
  std::shared_ptr<const Tensor> entries = {};
  double nnz = 0;
  std::vector<Degree> degrees = {};
};

/// A result: the elements of `expression` with axes in the order of `output`.
struct Query {
  std::string name;
  ExpressionPtr expression;
  std::vector<std::string> output;
};

/// The indices of one query: their names, distinct also between aggregates, and extents; and the dtype of its values.
struct IndexSpace {
  DType dtype = DType::kFloat64;
  std::vector<std::string> names;
  std::vector<int64_t> sizes;
  std::vector<std::string> originals;                         ///< the names that the user wrote
  std::vector<int64_t> roots;                                 ///< the index that each one is a path of, or itself
  std::map<std::pair<int64_t, int64_t>, int64_t> paths = {};  ///< by index and number of the path

  int64_t count() const { return static_cast<int64_t>(names.size()); }
  /// Raises PlanError for an unknown name.
  int64_t id_of(const std::string& name) const;
  /// The index for one path of another one, added when it is first asked for.
  int64_t path_of(int64_t index, int64_t path);
  /// An index of the same extent for copy 1, 2, ... of what is aggregated over this one, likewise.
  int64_t copy_of(int64_t index, int64_t copy);
};

/// Queries in their order over named tensors; a query may read earlier ones by name, its axes in the order of their
/// output. Fill and shape of all results are known.
class Program {
 public:
  /// Checks the program, gives each query's aggregates indices of their own, and raises PlanError naming the query and
  /// what is wrong: unknown tensors, ranks, extents that differ or are missing, outputs that are not the free indices.
  /// The dtype of all values is that of the tensors' entries, and float64 where none are known, unless it is given.
  Program(std::map<std::string, int64_t> index_sizes, std::map<std::string, InputTensor> tensors,
          std::vector<Query> queries, std::optional<DType> dtype = {});

  struct Result {
    Dims shape;
    double fill = 0;
  };

  DType dtype() const { return dtype_; }
  const std::map<std::string, int64_t>& index_sizes() const { return index_sizes_; }
  /// Whether no stored element is an infinity or no number, as a tensor was when this was first asked of it: sums of
  /// products may else differ from products of sums.
  bool all_finite() const;
  /// The same of which only statistics of the tensors are known.
  Program without_entries() const {
    Program out = *this;
    for (auto& [name, tensor] : out.tensors_) tensor.entries = nullptr;
    return out;
  }

  const std::map<std::string, InputTensor>& tensors() const { return tensors_; }
  const std::vector<Query>& queries() const { return queries_; }
  const IndexSpace& space(size_t query) const { return spaces_[query]; }
  /// Shape and fill of a query's result, or of a tensor.
  const Result& result(const std::string& name) const;

 private:
  void add(Query query);

  std::map<std::string, int64_t> index_sizes_;
  std::map<std::string, InputTensor> tensors_;
  DType dtype_;
  std::vector<Query> queries_;
  std::vector<IndexSpace> spaces_;
  std::map<std::string, Result> results_;
};

/// An expression whose aggregates reduce indices of their own, none of which is another's or free; the names that the
/// user wrote by new name. The first one of a name keeps it.
struct Distinct {
  ExpressionPtr expression;
  std::map<std::string, std::string> originals;
};
Distinct with_distinct_indices(const ExpressionPtr& expression, const std::vector<std::string>& reserved);

/// Shapes and fills of tensors and results by name, as far as an expression may read them.
using Readable = std::map<std::string, Program::Result>;

/// The indices of an expression with distinct ones and their extents; raises PlanError as Program does.
IndexSpace space_of(const std::string& who, const Distinct& distinct, const std::vector<std::string>& output,
                    const Readable& readable, const std::map<std::string, int64_t>& index_sizes,
                    DType dtype = DType::kFloat64);

/// The value of an expression where every tensor is at its fill.
double fill_of(const ExpressionPtr& expression, const Readable& readable, const IndexSpace& space);

}  // namespace joinsum::sparse::program

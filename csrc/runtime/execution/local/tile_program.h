#pragma once

#include <map>

#include <ATen/ATen.h>

#include "ia/nodes.h"
#include "kernels/table/rows.h"

namespace joinsum::runtime::execution::local {

/// In the letters of an array: an axis of extent 1 that is there for all indices of the result's.
constexpr char kRepeats = ' ';

/// A tuple of a materialized value that a program reads.
struct ReadTuple {
  const ia::Node* node;
  Key key;
};

/// What a run gives a program: its arrays, and the scalars that kernels read.
struct ProgramInputs {
  std::vector<at::Tensor> arrays;
  const kernels::table::Scalars& scalars;
};

/// How the arrays of one tuple of a reduction are computed: steps in order, the last ones being what is reduced. Each
/// axis of a step has a letter of the reduction, or repeats.
class TileProgram {
 public:
  struct Step {
    kernels::table::Kernel kernel;
    std::vector<size_t> operands;
    std::string letters;
    Dims shape;
    std::optional<size_t> read;  ///< position in the arrays of a run, of a step that computes nothing
    DType dtype;
  };

  explicit TileProgram(kernels::table::Kernel reduction);

  const kernels::table::Kernel& reduction() const { return reduction_; }
  const kernels::table::Subscripts& labels() const { return labels_; }
  const std::vector<ReadTuple>& reads() const { return reads_; }
  const Step& step(size_t number) const { return steps_[number]; }
  const std::vector<size_t>& reduced() const { return reduced_; }
  std::map<char, int64_t> extents() const;

  size_t add_array(std::string letters, ReadTuple tuple);
  /// What `kernel` computes of earlier steps.
  size_t add(const kernels::table::Kernel& kernel, std::vector<size_t> operands, std::string letters, Dims shape);
  void reduce(std::vector<size_t> operands);

  Dims result_shape() const;
  /// Floats of half width are accumulated in single precision.
  at::ScalarType result_type() const;
  int64_t flops() const;

  /// Writes the reduction to `out`, or reduces it into `out` with `accumulate`. Arrays are contiguous.
  void run(const ProgramInputs& inputs, const at::Tensor& out, bool accumulate) const;

 private:
  /// Part of each letter's indices.
  struct Part {
    int64_t begin;
    int64_t count;
  };
  using Parts = std::map<char, Part>;

  static int64_t points(const Parts& parts);
  static at::Tensor narrowed(at::Tensor array, const std::string& letters, const Parts& parts);
  std::vector<Dims> shapes_of(const std::vector<size_t>& steps) const;
  std::vector<DType> dtypes_of(const std::vector<size_t>& steps) const;
  void blocks(const ProgramInputs& inputs, const Parts& parts, const at::Tensor& out, bool accumulate) const;
  void block(const ProgramInputs& inputs, const Parts& parts, const at::Tensor& out, bool accumulate) const;

  kernels::table::Kernel reduction_;
  const kernels::table::Row* row_;
  kernels::table::Subscripts labels_;
  std::vector<Step> steps_;
  std::vector<ReadTuple> reads_;
  std::vector<size_t> reduced_;
  Parts all_;
};

}  // namespace joinsum::runtime::execution::local

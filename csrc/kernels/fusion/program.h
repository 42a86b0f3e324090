#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/ATen.h>

#include "kernels/fusion/functions.h"

namespace joinsum::kernels::fusion {

/// One axis of an array, or several that lie one after the other in memory.
struct Axis {
  int64_t extent;
  int64_t stride;
};

/// An operand spread over the shape of the results, in their order in memory.
struct Source {
  const void* data = nullptr;
  bool truth = false;
  c10::SmallVector<Axis, 4> axes;  ///< none: one element
  bool adjacent() const { return !truth && axes.size() == 1 && axes.front().stride == 1; }
};

using Sources = c10::SmallVector<Source, 8>;

/// Several functions of elements that are computed in one pass over memory. As text, `mul x0 x1; tanh t0; add t1 2.5 ->
/// t2 t0:bool t1:mean`: functions of operands (x), of earlier results (t) and of numbers, then which of them are the
/// results, in the operands' dtype, as truth values, or the sum or mean of all elements.
class Program {
 public:
  /// The program of a text, which is read once. Raises KernelError naming the place.
  static std::shared_ptr<const Program> of(std::string_view text);

  /// The results. Operands broadcast; they have one floating-point dtype, float32 or float64, but for truth values and
  /// tensors of no axes. New results lie in memory in the order of their axes, or `channels_last`; number i is written
  /// over operand overwritten[i] instead, unless that is negative, which has the results' shape and dtype. Results do
  /// not depend on the number of threads. Raises c10::Error where `unit` is beyond its bounds.
  std::vector<at::Tensor> run(at::TensorList operands, bool channels_last, at::IntArrayRef overwritten = {}) const;
  /// The same into arrays of the results' shapes and dtypes, which lie in memory in the order of their axes; each is an
  /// operand that may be overwritten or has no memory in common with any.
  void run_into(at::TensorList operands, at::TensorList results) const;

 private:
  explicit Program(const std::string& text);

  /// Numbers of values: operands, numbers and results of functions in the text's order.
  struct Step {
    Function function;
    std::array<int32_t, 3> arguments;
  };
  enum class Kind : uint8_t { kEach, kTruth, kSum, kMean };
  struct Output {
    int32_t value;
    Kind kind;
    bool reduces() const { return kind == Kind::kSum || kind == Kind::kMean; }
  };

  std::vector<at::Tensor> run(at::TensorList operands, at::MemoryFormat format, at::IntArrayRef overwritten,
                              at::TensorList into) const;
  template <class T>
  void compute(const Sources& sources, int64_t elements, const std::vector<at::Tensor>& results,
               at::IntArrayRef overwritten) const;

  int32_t operands_ = 0;
  std::vector<double> numbers_;
  std::vector<Step> steps_;
  std::vector<Output> outputs_;
  std::vector<int32_t> last_read_;  ///< of each value the last step that reads it; -1: none
  std::vector<int32_t> buffer_;     ///< of each result of a function the scratch memory that it takes
  int32_t buffers_ = 0;
};

}  // namespace joinsum::kernels::fusion

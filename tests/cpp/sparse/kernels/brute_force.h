#pragma once

#include <cmath>
#include <vector>

#include "base/dims.h"
#include "sparse/kernels/nest/arithmetic.h"
#include "sparse/kernels/walks.h"
#include "sparse/tensor/random_tensors.h"

namespace joinsum::sparse::kernels {

using namespace operators;  // NOLINT: the tests' own words
using namespace tensor;     // NOLINT

/// What a kernel means: every element of its result, computed over all coordinates.
template <class T>
class BruteForce {
 public:
  BruteForce(const Kernel& kernel, const KernelArguments& arguments)
      : kernel_(kernel), arguments_(arguments), fills_(fills_of(kernel)) {}

  /// The result at the coordinates of its levels.
  T element(const Dims& at) const {
    Dims lower(kernel_.loops.size());
    Dims upper = arguments_.extents;
    for (size_t l = 0; l < at.size(); ++l) {
      lower[kernel_.output[l]] = at[l];
      upper[kernel_.output[l]] = at[l] + 1;
    }
    if (!kernel_.aggregate) return body(lower);
    T value = nest::identity_in<T>(*kernel_.aggregate);
    for (const Key& key : keys_of(Box{lower, upper})) value = nest::applied(*kernel_.aggregate, value, body(key));
    return value;
  }

  /// An element of which no operand stores anything.
  T fill() const {
    const T body_fill = nest::value_of<T>(kernel_.body_fill);
    if (!kernel_.aggregate) return body_fill;
    T value = nest::identity_in<T>(*kernel_.aggregate);
    int64_t count = 1;
    for (int64_t loop = 0; loop < std::ssize(kernel_.loops); ++loop) {
      if (!position_of(kernel_.output, loop)) count *= arguments_.extents[loop];
    }
    for (int64_t i = 0; i < count; ++i) value = nest::applied(*kernel_.aggregate, value, body_fill);
    return value;
  }

 private:
  T body(const Dims& at) const {
    std::vector<bool> absent(kernel_.operands.size());
    std::vector<T> read(kernel_.operands.size());
    for (size_t o = 0; o < absent.size(); ++o) {
      const Tensor& tensor = *arguments_.operands[o];
      // Level l of an operand is the axis axes[l] of the tensor.
      Dims inside(tensor.levels.size());
      for (size_t l = 0; l < inside.size(); ++l) inside[tensor.axes[l]] = at[kernel_.operands[o].loops[l]];
      const std::optional<double> element =
          tensor.levels.empty() && !tensor.scalar_stored ? std::nullopt : element_at(tensor, inside);
      absent[o] = !element.has_value();
      read[o] = nest::value_of<T>(element.value_or(tensor.fill));
    }
    const std::vector<bool> at_fill = nodes_at_fill(kernel_, absent);
    if (at_fill.back()) return nest::value_of<T>(kernel_.body_fill);
    std::vector<T> values;
    for (size_t n = 0; n < kernel_.body.size(); ++n) {
      values.push_back(at_fill[n] ? nest::value_of<T>(fills_[n]) : node(kernel_.body[n], values, read));
    }
    return values.back();
  }

  T node(const BodyNode& node, const std::vector<T>& values, const std::vector<T>& read) const {
    if (node.kind == BodyNode::Kind::kOperand) return read[node.operand];
    if (node.kind == BodyNode::Kind::kLiteral) return nest::value_of<T>(node.literal);
    T value = values[node.children[0]];
    if (node.children.size() == 1) return apply(node.op, value);
    for (size_t i = 1; i < node.children.size(); ++i) value = nest::applied(node.op, value, values[node.children[i]]);
    return value;
  }

  const Kernel& kernel_;
  const KernelArguments& arguments_;
  std::vector<double> fills_;
};

}  // namespace joinsum::sparse::kernels

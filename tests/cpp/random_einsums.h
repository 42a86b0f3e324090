#pragma once

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "einsum/nodes.h"
#include "kernels/reference/array.h"

namespace joinsum::einsum {

/// Draws graphs of einsums, with labels of few extents (uneven ones, 1, and 0 at times), and contents for their inputs.
class RandomEinsums {
 public:
  explicit RandomEinsums(uint64_t seed) : random_(seed) {}

  struct Options {
    bool differentiable = false;  ///< joins that have a gradient, and no extent 0
    bool expressions = false;     ///< among the joins
    size_t vertices = 3;
  };

  Plan plan(const Options& options) {
    options_ = options;
    for (auto& [label, extent] : extents_) extent = draw(options.differentiable ? 0 : 12) == 1 ? 0 : 1 + draw(5);
    pool_.clear();
    inputs_ = 0;
    for (size_t v = 0; v < options.vertices; ++v) vertex();
    std::vector<Plan::Output> outputs{{"Z", pool_.back().node, std::nullopt}};
    if (draw(2) == 0) outputs.push_back({"W", pool_[pool_.size() / 2].node, std::nullopt});
    return Plan::make(std::move(outputs));
  }

  std::map<std::string, kernels::reference::Array> contents(const Plan& plan, bool integers) {
    std::map<std::string, kernels::reference::Array> out;
    for (const NodePtr& node : plan.inputs()) {
      kernels::reference::Array array = kernels::reference::Array::zeros(node->type().extents);
      for (double& value : array.values) {
        value = integers ? static_cast<double>(draw(7)) - 3 : static_cast<double>(random_() >> 11) * 0x1p-53 + 0.5;
      }
      out[node->as<Input>()->name] = std::move(array);
    }
    return out;
  }

  size_t draw(size_t below) { return below == 0 ? 0 : random_() % below; }

 private:
  struct Value {
    NodePtr node;
    Labels labels;  ///< whose extents its axes have
  };

  template <class T>
  const T& one_of(const std::vector<T>& choices) {
    return choices[draw(choices.size())];
  }

  Labels some_labels(size_t most) {
    Labels out;
    for (size_t n = draw(most + 1); n > 0; --n) out.push_back(one_of<std::string>({"i", "j", "k", "row"}));
    return out;
  }

  Value operand() {
    if (!pool_.empty() && draw(2) == 0) return one_of(pool_);
    const Labels labels = some_labels(3);
    TensorType type{DType::kFloat64, {}};
    for (const std::string& label : labels) type.extents.push_back(static_cast<int64_t>(extents_.at(label)));
    return {make_input("X" + std::to_string(inputs_++), std::move(type)), labels};
  }

  /// An expression of `count` operands; some of them read only a few.
  std::string expression(size_t count) {
    std::vector<std::string> choices{"x0-2*x1", "x1*x1-x0", "where(x0<x1,x1,x0*2)", "x1", "3"};
    if (count == 1) choices = {"where(x0<1,x0*x0,2-x0)", "3", "1-x0"};
    if (count > 2) {
      choices = {"x0*x1-x2", "where(x0<x1,x2,x0-x1)", "(x0-x2)*(x1-x2)", "where(x0,x1,x2)", "x1-x0", "x2"};
    }
    return "expression[" + std::to_string(count) + ", " + one_of(choices) + "]";
  }

  void vertex() {
    const size_t count = 1 + draw(3);
    Einsum op;
    std::vector<NodePtr> inputs;
    for (size_t i = 0; i < count; ++i) {
      const Value value = operand();
      inputs.push_back(value.node);
      op.operands.push_back(value.labels);
    }
    op.result = labels_of({some_labels(3)});
    if (draw(8) == 0 && !op.result.empty()) op.result.push_back(op.result[0]);
    for (const std::string& label : without(labels_of({op.result}), labels_of(op.operands))) {
      op.extents[label] = static_cast<int64_t>(extents_.at(label));
    }
    const std::vector<std::string> maps{"id", "square", "negate", "abs"};
    const std::vector<std::string> joins{
        "mul", "add", "sub", "max", "min", "squared_difference", "abs_difference", "sub | square", "mul"};
    const bool expresses = options_.expressions && draw(2) == 0;
    op.join = Kernel::parse(expresses ? expression(count) : count == 1 ? one_of(maps) : one_of(joins));
    op.aggregate = Kernel::parse(one_of<std::string>({"add", "add", "max", "min", "mul"}));
    NodePtr made = make(op, inputs);
    pool_.push_back({std::move(made), op.result});
  }

  std::mt19937_64 random_;
  Options options_;
  std::map<std::string, size_t> extents_{{"i", 2}, {"j", 3}, {"k", 1}, {"row", 4}};
  std::vector<Value> pool_;
  int64_t inputs_ = 0;
};

}  // namespace joinsum::einsum

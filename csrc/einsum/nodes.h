#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/plan.h"
#include "kernels/call/call.h"
#include "kernels/table/kernel.h"

namespace joinsum::einsum {

using kernels::call::Call;
using kernels::table::Kernel;

/// Names of a tensor's axes: letters, digits, `_` and `.`; prints as `ij{row}`.
using Labels = std::vector<std::string>;

/// Extents of labels.
using Extents = std::map<std::string, int64_t>;

/// A tensor as the user has it: no cuts, no sites. Prints as `f32[4,6]`; a sparse one, which stores about 9 elements,
/// as `f32[4,6] sparse{9}`. This estimate is not compared.
struct TensorType {
  DType dtype = DType::kFloat32;
  Dims extents;
  std::optional<int64_t> entries = {};

  std::string text() const;
  static TensorType parse(Scanner& scanner);
  bool operator==(const TensorType& other) const {
    return dtype == other.dtype && extents == other.extents && entries.has_value() == other.entries.has_value();
  }
};

/// An argument of the run.
struct Input {
  std::string name;
  bool operator==(const Input&) const = default;
};

/// Z[result] = ⊕ over the labels that the result lacks of ⊗(X[labels], Y[labels], ...). A label that occurs twice in an
/// operand takes its diagonal; one that occurs twice in the result makes a diagonal, with zeros beside it.
/// Source: EinDecomp, section 3.
struct Einsum {
  std::vector<Labels> operands;
  Labels result;
  Kernel join;  ///< ⊗: elementwise; one of two operands joins several from left to right; one of one operand is a map
  Kernel aggregate;  ///< ⊕: elementwise, associative and commutative
  Extents extents;   ///< of the labels that only the result has
  bool operator==(const Einsum&) const = default;
};

using Operation = std::variant<Input, Einsum, Call>;
using Node = joinsum::Node<Operation, TensorType>;
using NodePtr = Node::Pointer;

/// The only ways to create a node; they infer its type and raise every type error.
NodePtr make_input(std::string name, TensorType type);
NodePtr make(Operation operation, std::vector<NodePtr> inputs);

/// Name of the operator as plans and errors print it.
std::string operator_name(const Operation& operation);

/// A graph of einsums with named outputs.
class Plan : public joinsum::Plan<Node> {
 public:
  Plan() = default;
  /// Checks names and ties (an output tied to an input has its type); inputs of one name must be one node.
  static Plan make(std::vector<Output> outputs);
  std::vector<NodePtr> inputs() const;
  std::string text() const;
  uint64_t hash() const;

 private:
  explicit Plan(std::vector<Output> outputs) : joinsum::Plan<Node>(std::move(outputs)) {}
};

/// Equal operators over equal inputs, node by node, with equal sharing, names and ties.
bool operator==(const Plan& a, const Plan& b);

// --- labels ----------------------------------------------------------------------------------------------------------

bool has(const Labels& labels, const std::string& label);

/// Position of the first `label`.
int64_t axis_of(const Labels& labels, const std::string& label);

/// Labels of the operands, each once, in the order in which they are met.
Labels labels_of(const std::vector<Labels>& operands);

/// Those of `labels` that `other` has (or lacks), in order.
Labels common(const Labels& labels, const Labels& other);
Labels without(const Labels& labels, const Labels& other);

/// Whether no label occurs twice.
bool distinct(const Labels& labels);

/// Extent of each label; raises where ranks or extents do not fit.
Extents extents_of(const Einsum& op, const std::vector<TensorType>& operands);

}  // namespace joinsum::einsum

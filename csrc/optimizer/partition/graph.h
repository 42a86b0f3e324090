#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/dims.h"
#include "optimizer/partition/paper_cost.h"

namespace joinsum::optimizer {

/// The labels of an array's axes, in order.
using LabelList = std::vector<std::string>;

/// An array of a graph: the result of a vertex, or an input.
struct PartitionSource {
  enum class Kind { kInput, kVertex };
  Kind kind;
  int64_t index;
};

struct PartitionOperand {
  PartitionSource source;
  /// A label may occur twice: only tuples on that diagonal are read, but all of them count as moved.
  LabelList labels;
};

/// An einsum: a join of operands on their common labels, aggregated over the labels that the result lacks.
struct PartitionVertex {
  std::string name;
  std::vector<PartitionOperand> operands;
  LabelList result;
  std::map<std::string, int64_t> extents;  ///< of all its labels
  bool aggregates = true;                  ///< no label may vanish where this is false
};

struct PartitionInput {
  std::string name;
  Dims extents;
};

struct PartitionOutput {
  std::string name;
  PartitionSource source;
};

/// Part counts that the plan must have, by label. A pin of a vertex names some of its labels. A pin of an output names
/// labels of its vertex's result, and so says how the vertex leaves it. A pin of an input names all its axes, as 0, 1,
/// ...: the input is then stored so, and readers that want it otherwise pay for a repartition.
struct PartitionPin {
  std::string name;
  std::map<std::string, int64_t> parts;
};

/// What the planner needs to know of a graph of einsums. A vertex reads inputs and earlier vertices.
struct PartitionGraph {
  std::vector<PartitionInput> inputs;
  std::vector<PartitionVertex> vertices;
  std::vector<PartitionOutput> outputs;
  std::vector<PartitionPin> pins;
};

/// The unique labels of a vertex, in the order in which its operands and then its result name them: the order of its
/// partition vectors.
LabelList labels_of(const PartitionVertex& vertex);

/// The vertex with its labels numbered in the order of `labels_of`.
EinsumShape shape_of(const PartitionVertex& vertex);

/// Raises PlanError for a graph that cannot be right, naming the vertex and what to change.
void check(const PartitionGraph& graph);

}  // namespace joinsum::optimizer

#pragma once

#include <optional>
#include <set>
#include <vector>

#include "optimizer/division/label_classes.h"
#include "optimizer/layouts/placement_cache.h"
#include "optimizer/model/constraints.h"

namespace joinsum::optimizer::model {

/// A strategy of an operator: the layouts that its operands must have, and that of its result.
struct Strategy {
  std::vector<const layouts::Layout*> operand_layouts;
  const layouts::Layout* result = nullptr;
  double value = 0;  ///< of the local work, by the objective
  double flops = 0;
};

/// An operator with its strategies, or an input with the layouts in which it may start; and the layouts of its value.
struct Vertex {
  const tra::Node* node = nullptr;  ///< the node that produces the value
  const tra::Node* join = nullptr;  ///< the join below the sum `node`, if both run as one
  std::optional<size_t> output;     ///< the output of the plan that this vertex is; it reads `node`'s value
  std::vector<int64_t> operands;    ///< vertices
  std::set<int64_t> labels;         ///< of the dimensions that it may divide
  size_t relation = 0;              ///< number of the type of its value (`Layouts::number`)
  size_t operation = 0;             ///< number of the operator (`OperatorCosts::number`)
  std::vector<Strategy> strategies;
  std::vector<const layouts::Layout*> layouts;  ///< one for each placement

  /// The join that it runs: alone, or as one with the sum that reads it.
  const tra::Node* joined() const;
  const tra::Input* input() const { return node->as<tra::Input>(); }
  const tra::Call* call() const { return output ? nullptr : node->as<tra::Call>(); }
  /// The one of the value's layouts that has the placement of `layout`.
  const layouts::Layout* layout_like(const layouts::Layout* layout) const;
};

/// The vertices of a logical plan, inputs before their readers, without strategies and layouts. A sum that can leave
/// partials is one vertex with the join below it, unless that is pinned or has other readers. Outputs with constraints
/// on their layout are vertices that read their values.
std::vector<Vertex> vertices_of(const tra::Plan& plan, const PlacementConstraints& constraints,
                                layouts::PlacementCache& cache, const division::LabelClasses& labels);

/// A logical plan whose values are to be placed: its vertices, and what each of their strategies costs.
struct PlacementModel {
  const tra::Plan& plan;
  const PlacementConstraints& constraints;
  layouts::PlacementCache& cache;
  const std::vector<Vertex>& vertices;
  const std::vector<std::vector<double>>& costs;  ///< of vertices, by strategy
};

/// The strategy of each vertex, and its value's staging layout; null if it is not staged.
struct Choice {
  std::vector<const Strategy*> strategies;
  std::vector<const layouts::Layout*> staged;
};

/// What reads a value.
struct Consumers {
  std::vector<std::pair<size_t, size_t>> operands;  ///< vertices that read it, and as which operand
  std::vector<size_t> starts;                       ///< inputs whose start is tied to it
  int64_t outputs = 0;                              ///< outputs without constraints on their layout
  int64_t tied = 0;                                 ///< those of them that are tied to an input

  bool ends() const { return outputs > tied; }
  bool any() const { return ends() || !operands.empty() || !starts.empty(); }
};

/// The consumers of each vertex's value.
std::vector<Consumers> consumers_of(const PlacementModel& model);

/// For each vertex itself; for a result of a call the first vertex that is a result of the same call. These come from
/// one run, so they have equally many strategies and use the same one.
std::vector<size_t> first_results(const std::vector<Vertex>& vertices);

}  // namespace joinsum::optimizer::model

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "optimizer/eindecomp/graph.h"
#include "optimizer/eindecomp/tables.h"
#include "optimizer/min_sum/min_sum.h"

namespace joinsum::optimizer::eindecomp {

constexpr int64_t kOpen = -1;
/// A choice for each vertex: a position in its table's vectors, or `kOpen`.
using Choices = std::vector<int64_t>;

/// The partition vectors of a graph as a sum of tables: one per vertex, and one per operand that another operation
/// computes.
class PartitionProblem {
 public:
  /// A move from one vertex to an operand of another.
  struct Edge {
    int64_t producer;
    int64_t consumer;
    int64_t operand;
    std::shared_ptr<const MoveTable> table;
  };

  /// Raises PlanError for a wrong graph or pins; see `check` and `apply_pins`.
  PartitionProblem(const einsum::json::JsonGraph& graph, const std::vector<PartitionPin>& pins, int64_t calls);

  int64_t vertices() const { return static_cast<int64_t>(tables_.size()); }
  const VertexTable& table(int64_t vertex) const { return *tables_[vertex]; }
  const std::vector<Edge>& edges() const { return edges_; }
  /// Positions in `edges` of the moves that begin or end at a vertex.
  const std::vector<int64_t>& edges_at(int64_t vertex) const { return edges_at_[vertex]; }
  /// How the input that an operand reads is stored; nothing if no pin says so, or if the operand is no input.
  const std::optional<Dims>& stored(const std::string& operand) const;
  /// Distinct tables, and the tables that there would be if none were shared.
  int64_t distinct_tables() const { return shared_.size(); }
  int64_t all_tables() const { return vertices() + static_cast<int64_t>(edges_.size()); }

  double move_floats(const Edge& edge, const Choices& choices) const;
  /// The cost of complete choices.
  double cost(const Choices& choices) const;
  /// No choices cost less: each vertex at its cheapest, and no moves.
  double lower_bound() const;
  /// Entries that the move between two vertices takes in a `min_sum::Problem`.
  double entries(const Edge& edge) const;

  /// The problem of the `open` vertices alone, in that order, beside the choices of the others: moves to and from
  /// those are charged, moves to and from other open vertices are not.
  min_sum::Problem part(const std::vector<int64_t>& open, const Choices& choices) const;

 private:
  std::vector<double> costs_beside(int64_t vertex, const Choices& choices) const;
  std::vector<double> expanded(const Edge& edge) const;

  PartitionTables shared_;
  std::map<std::string, std::optional<Dims>> stored_;  ///< by input
  std::vector<std::shared_ptr<const VertexTable>> tables_;
  std::vector<Edge> edges_;
  std::vector<std::vector<int64_t>> edges_at_;
};

}  // namespace joinsum::optimizer::eindecomp

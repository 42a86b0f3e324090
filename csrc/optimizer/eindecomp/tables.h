#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "optimizer/eindecomp/paper_cost.h"

namespace joinsum::optimizer::eindecomp {

/// How the vectors of a vertex cut one array: the distinct cuts, and the cut of each vector.
struct DistinctCuts {
  std::vector<Dims> distinct;  ///< parts by axis
  std::vector<int64_t> of;     ///< by vector
};

/// What a vertex can choose from, and what each choice costs by itself.
struct VertexTable {
  std::vector<Dims> vectors;          ///< parts by label
  std::vector<double> costs;          ///< join, aggregation, and reading of inputs that are stored somehow
  std::vector<DistinctCuts> layouts;  ///< of each operand, and of the result last
};

/// What a repartition costs: row-major over the producer's layouts times the consumer's.
using MoveTable = std::vector<double>;

/// A vertex as its table needs it; equal ones share a table.
struct VertexKey {
  EinsumShape shape;
  /// For each operand, and for the result last: whether its layout matters to other vertices.
  std::vector<bool> moves;
  /// How each operand is stored, if it is an input with a pin.
  std::vector<std::optional<Dims>> stored;
  Dims pinned;  ///< parts by label, 0 where free
};

/// Makes tables, each once: vertices of one form and their moves, as those of a model's identical layers, share them.
class PartitionTables {
 public:
  /// The table of a vertex that has these vectors. Of vectors that give all arrays that other vertices read or produce
  /// the same layouts, only the cheapest stays: no other one can be part of a better plan.
  std::shared_ptr<const VertexTable> vertex(const VertexKey& key, const std::vector<Dims>& vectors);

  /// The table of the moves from the result of `producer` to an operand of `consumer` with these extents.
  std::shared_ptr<const MoveTable> moves(const std::shared_ptr<const VertexTable>& producer,
                                         const std::shared_ptr<const VertexTable>& consumer, int64_t operand,
                                         const Dims& extents);

  /// How many tables there are.
  int64_t size() const { return static_cast<int64_t>(vertices_.size() + moves_.size()); }

 private:
  std::map<Dims, std::shared_ptr<const VertexTable>> vertices_;
  std::map<std::tuple<const VertexTable*, const VertexTable*, int64_t>, std::shared_ptr<const MoveTable>> moves_;
};

}  // namespace joinsum::optimizer::eindecomp

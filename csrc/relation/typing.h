#pragma once

#include "kernels/table/table.h"
#include "relation/key_expression.h"
#include "relation/relation_type.h"

namespace joinsum::relation {

/// Types of relations under the operators that both algebras share; `who` (`join`, `local_join`, ...) opens messages.

/// Keys: all left components, then the right ones that are not join keys.
struct JoinKeys {
  Dims left;
  Dims right;
  /// Output position of each left / right key dimension.
  Dims left_position(int64_t left_arity) const;
  Dims right_position(int64_t left_arity, int64_t right_arity) const;
  /// The key of a joined pair.
  Key joined(Key left_key, const Key& right_key) const;
  /// The keys of all pairs from two boxes; an empty box where none meet.
  Box joined(const Box& left_box, const Box& right_box) const;
};

/// Raises where the arrays of `relation` are sparse.
void check_dense(const std::string& who, const RelationType& relation);

/// Stored elements of a relation by all that there are: 1 of a dense one.
double density_of(const RelationType& relation);

/// A sparse relation meets a dense one in a product that is summed, with a dense result. Of two sparse ones, and where
/// `kernels::table::gives_sparse` says so, the result is sparse.
RelationType join_type(const std::string& who, const RelationType& left, const RelationType& right, const JoinKeys& on,
                       const kernels::table::Kernel& kernel);

/// Groups by `group_by`, in that order. `concat[axis]` aggregates in key order and needs one whole dropped dimension.
RelationType aggregate_type(const std::string& who, const RelationType& input, const Dims& group_by,
                            const kernels::table::Kernel& kernel);

RelationType filter_type(const std::string& who, const RelationType& input, const KeyExpression& predicate);

/// The tuples of `updates`, and those of `base` whose key it lacks.
RelationType upsert_type(const std::string& who, const RelationType& base, const RelationType& updates);

/// Each tuple gives `outputs` tuples: key_map at (key, m), output m of array_map.
RelationType map_type(const std::string& who, const RelationType& input, int64_t outputs, const KeyMap& key_map,
                      const kernels::table::Kernel& array_map);

/// What the kernels that follow `kernel` make of its result.
RelationType epilogue_type(const std::string& who, RelationType result, const kernels::table::Kernel& kernel);

/// What Tile makes of a relation, as a map: its number of outputs, key map and kernel.
struct TileMap {
  int64_t outputs;
  KeyMap key_map;
  kernels::table::Kernel array_map;
};
TileMap tile_map(const std::string& who, const RelationType& input, int64_t axis, int64_t size);

}  // namespace joinsum::relation

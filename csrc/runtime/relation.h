#pragma once

#include <map>
#include <vector>

#include <ATen/ATen.h>

#include "ia/type.h"
#include "runtime/block_store.h"

namespace joinsum::runtime {

/// How a box of tuples is one tensor: leading axes count the keys of the dimensions that no axis is linked to, in key
/// order; then come the array axes, a linked one running through all its parts.
class Layout {
 public:
  explicit Layout(const RelationType& relation);
  /// Key dimensions with a leading axis of their own.
  const Dims& batch_dims() const { return batch_dims_; }
  Dims shape(const Box& box) const;
  /// The part of `array` (stored for `stored`) that belongs to `wanted`; a view.
  at::Tensor slice(const at::Tensor& array, const Box& stored, const Box& wanted) const;
  int64_t position_of_axis(int64_t axis) const { return static_cast<int64_t>(batch_dims_.size()) + axis; }

 private:
  const RelationType& relation_;
  Dims batch_dims_;
};

/// The blocks of a physical relation on the sites of this process, in the order of `type.stored(site)`.
struct StoredRelation {
  ia::PhysicalType type;
  std::map<int64_t, std::vector<BlockHandle>> sites;
};

/// One tuple, or one box of tuples, with its array.
struct Piece {
  Box box;
  at::Tensor array;
};

/// Puts pieces into the boxes that a site stores: as they are where they match, sliced where they are larger, copied
/// together where they are smaller. Pieces of one key that occurs several times are taken in order.
std::vector<at::Tensor> assemble(const RelationType& relation, const std::vector<Box>& stored,
                                 const std::vector<Piece>& pieces, const at::TensorOptions& options);

/// Places a whole tensor (its axes linked or of full extent; other key dimensions must be single) on `sites`. Copies
/// only with `copy`; otherwise blocks are views.
StoredRelation place_tensor(const at::Tensor& tensor, const ia::PhysicalType& type, const std::vector<int64_t>& sites,
                            BlockStore& store, bool copy);
/// Places tuples given one by one, equal keys in the given order.
StoredRelation place_tuples(const std::vector<std::pair<Key, at::Tensor>>& tuples, const ia::PhysicalType& type,
                            const std::vector<int64_t>& sites, BlockStore& store, bool copy);

/// The same blocks as those of a relation of another type, whose blocks hold the same elements: axes are split, merged
/// or cut in other parts where no site's share changes. Raises PlanError where a block has another number of elements.
StoredRelation retyped(const StoredRelation& relation, const ia::PhysicalType& type, BlockStore& store);
/// The arrays of a relation's blocks, site by site: what elementwise operators work on. They share the relation's
/// memory.
std::vector<at::Tensor> block_arrays(const StoredRelation& relation, BlockStore& store);
/// The relation on `sites` whose blocks are these arrays, in the order of `block_arrays`.
StoredRelation place_blocks(const std::vector<at::Tensor>& arrays, const ia::PhysicalType& type,
                            const std::vector<int64_t>& sites, BlockStore& store);

/// All tuples on the sites of this process, each key's replicas once, ascending.
std::vector<std::pair<Key, at::Tensor>> tuples(const StoredRelation& relation, BlockStore& store);

/// The tensor that a relation represents: linked axes put together; every key dimension must be linked to one axis or
/// have a single key. Raises PlanError where the relation has holes, duplicates or unlinked dimensions.
at::Tensor whole_tensor(const StoredRelation& relation, BlockStore& store);

}  // namespace joinsum::runtime

#pragma once

#include <map>
#include <vector>

#include <ATen/ATen.h>
#include <c10/util/SmallVector.h>

#include "ia/type.h"
#include "runtime/storage/block_store.h"

namespace joinsum::runtime::storage {

/// How a box of tuples is one tensor: leading axes count the keys of the dimensions that no axis is linked to, in key
/// order; then come the array axes, a linked one running through all its parts.
class Layout {
 public:
  explicit Layout(const relation::RelationType& relation);
  /// Key dimensions with a leading axis of their own.
  const Dims& batch_dims() const { return batch_dims_; }
  bool sparse() const { return relation_.sparse(); }
  Dims shape(const Box& box) const;
  /// Where the array of `part` begins in that of `box`, which contains it.
  Dims offset(const Box& box, const Box& part) const;
  /// The part of `array` (stored for `stored`) that belongs to `wanted`; a view.
  at::Tensor slice(at::Tensor array, const Box& stored, const Box& wanted) const;
  Block slice(Block block, const Box& stored, const Box& wanted) const;
  int64_t position_of_axis(int64_t axis) const { return static_cast<int64_t>(batch_dims_.size()) + axis; }

 private:
  template <class Array>
  Array sliced(Array array, const Box& stored, const Box& wanted) const;

  const relation::RelationType& relation_;
  Dims batch_dims_;
};

/// The blocks of one site, of which most have one.
using Blocks = c10::SmallVector<Block, 1>;

/// Blocks by site, ascending. A process has few sites, mostly one: that one's blocks are stored in place.
class SiteBlocks {
 public:
  using Entry = std::pair<int64_t, Blocks>;

  /// Adds the site where it is missing.
  Blocks& operator[](int64_t site);
  /// Raises std::out_of_range where the site is missing.
  const Blocks& at(int64_t site) const;
  const Entry* begin() const { return entries_.begin(); }
  const Entry* end() const { return entries_.end(); }

 private:
  c10::SmallVector<Entry, 1> entries_;
};

/// The blocks of a physical relation on the sites of this process, in the order of `type->stored(site)`.
struct StoredRelation {
  ia::SharedType type;
  SiteBlocks sites;
};

/// One tuple, or one box of tuples, with its block.
struct Piece {
  Box box;
  Block block;
};

/// Boxes with their blocks.
std::vector<Piece> pieces_of(const std::vector<Box>& boxes, c10::ArrayRef<Block> blocks);

/// Numbers that are equal for pieces of the same boxes whose blocks are the same memory in the same layout.
std::vector<int64_t> identity_of(const std::vector<Piece>& pieces);

/// Fits pieces to the boxes that a site stores: as they are where they match, sliced where they are larger, copied
/// together where they are smaller. Pieces of one key that occurs several times are taken in order.
Blocks assemble(const relation::RelationType& relation, const std::vector<Box>& stored,
                const std::vector<Piece>& pieces, const at::TensorOptions& options, BlockStore& store);

/// What happens to an array that a relation is made of.
enum class Ownership {
  kCopied,  ///< the relation has copies
  kShared,  ///< the relation's blocks are views
};

/// Stores a whole tensor (its axes linked or of full extent; other key dimensions must be single) on `sites`.
StoredRelation place_tensor(const at::Tensor& tensor, const ia::PhysicalType& type, const std::vector<int64_t>& sites,
                            BlockStore& store, Ownership ownership);
/// Stores tuples listed one by one, equal keys in the order of the list.
StoredRelation place_tuples(const std::vector<std::pair<Key, at::Tensor>>& tuples, const ia::PhysicalType& type,
                            const std::vector<int64_t>& sites, BlockStore& store, Ownership ownership);

/// The same blocks as those of a relation of another type, whose blocks hold the same elements: axes are split, merged
/// or cut in other parts where no site's share changes. Raises PlanError where a block has another number of elements.
StoredRelation retyped(const StoredRelation& relation, const ia::PhysicalType& type, BlockStore& store);
/// The same memory in blocks of their own, so that overwriting one relation is known to touch the other.
StoredRelation with_own_blocks(const StoredRelation& relation, BlockStore& store);

/// The arrays of a relation's blocks, site by site: what elementwise operators work on. They share the relation's
/// memory.
std::vector<at::Tensor> block_arrays(const StoredRelation& relation);
/// The relation on `sites` whose blocks are these arrays, shared, in the order of `block_arrays`.
StoredRelation place_blocks(const std::vector<at::Tensor>& arrays, const ia::PhysicalType& type,
                            const std::vector<int64_t>& sites, BlockStore& store);
/// Whether `array` shares memory with the relation.
bool shares_memory(const StoredRelation& relation, const at::Tensor& array);

/// All tuples on the sites of this process, each key's replicas once, ascending; they may share the relation's memory.
std::vector<std::pair<Key, at::Tensor>> tuples(const StoredRelation& relation);

/// The tensor that a relation represents: linked axes put together; every key dimension must be linked to one axis or
/// have a single key. It may share the relation's memory. Raises PlanError where the relation has holes, duplicates or
/// unlinked dimensions.
at::Tensor whole_tensor(const StoredRelation& relation, BlockStore& store);

}  // namespace joinsum::runtime::storage

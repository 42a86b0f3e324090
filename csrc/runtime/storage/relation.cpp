#include "runtime/storage/relation.h"

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>

#include "runtime/storage/sparse_array.h"

namespace joinsum::runtime::storage {

Layout::Layout(const relation::RelationType& relation) : relation_(relation) {
  for (int64_t d = 0; d < relation.arity(); ++d) {
    if (relation.axes_of(d).empty()) batch_dims_.push_back(d);
  }
}

Dims Layout::offset(const Box& box, const Box& part) const {
  Dims offset;
  for (const int64_t d : batch_dims_) offset.push_back(part.lower[d] - box.lower[d]);
  for (const relation::Axis& axis : relation_.axes) {
    offset.push_back(axis.linked() ? axis.cuts[part.lower[axis.key_dim]] - axis.cuts[box.lower[axis.key_dim]] : 0);
  }
  return offset;
}

Dims Layout::shape(const Box& box) const {
  Dims shape;
  for (const int64_t d : batch_dims_) shape.push_back(box.extent(d));
  for (const relation::Axis& axis : relation_.axes) shape.push_back(axis.extent_over(box));
  return shape;
}

namespace {

/// Indices [begin, begin + extent) of an axis: the array itself where these are all.
at::Tensor narrowed(const at::Tensor& array, int64_t axis, int64_t begin, int64_t extent) {
  if (array.is_sparse()) return part_of(array, geometry_of(array).narrow(axis, begin, extent));
  return extent == array.size(axis) ? array : array.narrow(axis, begin, extent);
}
Block narrowed(const Block& block, int64_t axis, int64_t begin, int64_t extent) {
  return block.narrow(axis, begin, extent);
}

}  // namespace

template <class Array>
Array Layout::sliced(Array out, const Box& stored, const Box& wanted) const {
  for (size_t i = 0; i < batch_dims_.size(); ++i) {
    const int64_t d = batch_dims_[i];
    out = narrowed(out, static_cast<int64_t>(i), wanted.lower[d] - stored.lower[d], wanted.extent(d));
  }
  for (int64_t a = 0; a < relation_.rank(); ++a) {
    const relation::Axis& axis = relation_.axes[a];
    if (!axis.linked()) continue;
    const int64_t begin = axis.cuts[wanted.lower[axis.key_dim]] - axis.cuts[stored.lower[axis.key_dim]];
    out = narrowed(out, position_of_axis(a), begin, axis.extent_over(wanted));
  }
  return out;
}

at::Tensor Layout::slice(at::Tensor array, const Box& stored, const Box& wanted) const {
  return sliced(std::move(array), stored, wanted);
}

Block Layout::slice(Block block, const Box& stored, const Box& wanted) const {
  return sliced(std::move(block), stored, wanted);
}

Blocks& SiteBlocks::operator[](int64_t site) {
  auto at = std::lower_bound(entries_.begin(), entries_.end(), site,
                             [](const Entry& entry, int64_t wanted) { return entry.first < wanted; });
  if (at == entries_.end() || at->first != site) at = entries_.insert(at, Entry{site, {}});
  return at->second;
}

const Blocks& SiteBlocks::at(int64_t site) const {
  const auto at =
      std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.first == site; });
  if (at == entries_.end()) throw std::out_of_range("no blocks on site " + std::to_string(site));
  return at->second;
}

std::vector<Piece> pieces_of(const std::vector<Box>& boxes, c10::ArrayRef<Block> blocks) {
  JOINSUM_CHECK(boxes.size() == blocks.size(), "boxes=", boxes.size(), ", blocks=", blocks.size());
  std::vector<Piece> pieces;
  pieces.reserve(boxes.size());
  for (size_t i = 0; i < boxes.size(); ++i) pieces.push_back({boxes[i], blocks[i]});
  return pieces;
}

std::vector<int64_t> identity_of(const std::vector<Piece>& pieces) {
  std::vector<int64_t> out;
  for (const Piece& piece : pieces) {
    out.insert(out.end(), piece.box.lower.begin(), piece.box.lower.end());
    out.insert(out.end(), piece.box.upper.begin(), piece.box.upper.end());
    piece.block.append_identity(out);
  }
  return out;
}

namespace {

at::Tensor gather_sparse(const Layout& layout, const Box& box, const std::vector<Piece>& pieces,
                         const at::TensorOptions& options) {
  std::vector<std::pair<Dims, at::Tensor>> parts;
  const Dims shape = layout.shape(box);
  int64_t covered = 0;
  for (const Piece& piece : pieces) {
    const Box part = piece.box.intersect(box);
    if (part.empty()) continue;
    const Pin pin(layout.slice(piece.block, piece.box, part));
    parts.emplace_back(layout.offset(box, part), pin.array());
    covered += c10::multiply_integers(pin.array().sizes());
  }
  JOINSUM_CHECK(covered == c10::multiply_integers(shape), "box ", box.text(), " is covered by ", covered,
                " elements of a sparse block");
  return put_together(parts, shape, c10::typeMetaToScalarType(options.dtype()));
}

/// Occurrence `number` of `box`: cut out of the piece that contains it, or copied together from the pieces inside it.
Block gather_pieces(const Layout& layout, const Box& box, size_t number, const std::vector<Piece>& pieces,
                    const at::TensorOptions& options, BlockStore& store) {
  for (const Piece& piece : pieces) {
    if (piece.box.contains(box) && number-- == 0) return layout.slice(piece.block, piece.box, box);
  }
  if (layout.sparse()) return store.put(gather_sparse(layout, box, pieces, options));
  Block out = store.put(store.allocate(layout.shape(box), options));
  int64_t covered = 0;
  for (const Piece& piece : pieces) {
    const Box part = piece.box.intersect(box);
    if (part.empty()) continue;
    const Block to = layout.slice(out, box, part);
    copy(layout.slice(piece.block, piece.box, part), to);
    covered += to.elements();
  }
  JOINSUM_CHECK(covered == out.elements(), "box ", box.text(), " is covered by ", covered, " of ", out.elements(),
                " elements");
  return out;
}

}  // namespace

Blocks assemble(const relation::RelationType& relation, const std::vector<Box>& stored,
                const std::vector<Piece>& pieces, const at::TensorOptions& options, BlockStore& store) {
  const Layout layout(relation);
  std::map<Box, std::vector<Block>> exact;
  for (const Piece& piece : pieces) exact[piece.box].push_back(piece.block);
  std::map<Box, size_t> taken;
  Blocks out;
  out.reserve(stored.size());
  for (const Box& box : stored) {
    if (relation.elements_over(box) == 0) {  // boxes without elements are not sent
      const at::TensorOptions empty = options.layout(relation.sparse() ? at::kSparse : at::kStrided);
      out.push_back(store.put(at::empty(layout.shape(box), empty)));
      continue;
    }
    const size_t number = taken[box]++;
    const auto found = exact.find(box);
    if (found == exact.end()) {
      out.push_back(gather_pieces(layout, box, number, pieces, options, store));
      continue;
    }
    JOINSUM_CHECK(number < found->second.size(), "too few tuples at ", box.text());
    out.push_back(found->second[number]);
  }
  return out;
}

namespace {

/// Blocks in `store` of the caller's arrays: `pieces` has them as blocks that no store counts.
StoredRelation store_pieces(const ia::PhysicalType& type, const std::vector<int64_t>& sites,
                            const std::vector<Piece>& pieces, const at::TensorOptions& options, BlockStore& store,
                            Ownership ownership) {
  StoredRelation out{ia::shared(type), {}};
  std::map<std::vector<Box>, Blocks> placed;
  for (const int64_t site : sites) {
    const auto boxes = type.stored(site);
    auto& blocks = placed[boxes];
    if (blocks.empty()) {
      for (const Block& block : assemble(type.relation, boxes, pieces, options, store)) {
        const Pin pin(block);
        const at::Tensor& array = pin.array();
        const auto format = array.is_sparse() ? at::MemoryFormat::Preserve : at::MemoryFormat::Contiguous;
        blocks.push_back(ownership == Ownership::kCopied ? store.put(array.clone(format)) : store.share(array));
      }
    }
    out.sites[site] = blocks;
  }
  return out;
}

}  // namespace

StoredRelation place_tensor(const at::Tensor& tensor, const ia::PhysicalType& type, const std::vector<int64_t>& sites,
                            BlockStore& store, Ownership ownership) {
  const Box all = Box::below(type.relation.frontier);
  const Layout layout(type.relation);
  const Dims shape = layout.shape(all);
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  JOINSUM_USER_CHECK(type.relation.regular() && tensor.numel() == count,
                     "input: tensor does not fit the relation: shape=", tensor.sizes().vec(),
                     ", type=", type.relation.text());
  JOINSUM_USER_CHECK(
      type.relation.sparse() == tensor.is_sparse(), "input: ",
      tensor.is_sparse() ? "tensor is sparse, and the relation is not" : "relation is sparse, the tensor not",
      ": type=", type.relation.text());
  const at::TensorOptions options = tensor.options().layout(at::kStrided);
  return store_pieces(type, sites, {{all, block_of(reshaped(tensor, shape))}}, options, store, ownership);
}

namespace {

/// The same memory as another block, one for blocks of one identity.
Block own_block(const Block& block, std::map<std::vector<int64_t>, Block>& known, BlockStore& store) {
  std::vector<int64_t> identity;
  block.append_identity(identity);
  Block& own = known[identity];
  if (!own.defined()) {
    const Pin pin(block);
    own = store.put(pin.array());
  }
  return own;
}

}  // namespace

StoredRelation retyped(const StoredRelation& relation, const ia::PhysicalType& type, BlockStore& store) {
  const Layout layout(type.relation);
  StoredRelation out{ia::shared(type), {}};
  std::map<std::vector<int64_t>, Block> own;
  for (const auto& [site, blocks] : relation.sites) {
    const auto boxes = type.stored(site);
    Blocks& other = out.sites[site];
    bool fits = boxes.size() == blocks.size() && boxes.size() <= 1;
    for (size_t i = 0; fits && i < boxes.size(); ++i) {
      const Dims shape = layout.shape(boxes[i]);
      fits = blocks[i].elements() == checked_product("retyped", shape);
      if (fits) other = {own_block(concatenate({blocks[i]}, shape, store), own, store)};
    }
    JOINSUM_USER_CHECK(fits, "relation: blocks of another type hold other elements: site=", site,
                       ", type=", relation.type->text(), ", wanted=", type.text());
  }
  return out;
}

StoredRelation with_own_blocks(const StoredRelation& relation, BlockStore& store) {
  StoredRelation out{relation.type, {}};
  std::map<std::vector<int64_t>, Block> own;
  for (const auto& [site, blocks] : relation.sites) {
    auto& renewed = out.sites[site];
    for (const Block& block : blocks) renewed.push_back(own_block(block, own, store));
  }
  return out;
}

StoredRelation place_tuples(const std::vector<std::pair<Key, at::Tensor>>& tuples, const ia::PhysicalType& type,
                            const std::vector<int64_t>& sites, BlockStore& store, Ownership ownership) {
  const Layout layout(type.relation);
  std::vector<Piece> pieces;
  for (const auto& [key, array] : tuples) {
    const Box box = Box::single(key);
    JOINSUM_USER_CHECK(array.sizes().vec() == type.relation.array_shape(key),
                       "input: array does not fit the relation: key=", key_text(key), ", shape=", array.sizes().vec(),
                       ", wanted=", type.relation.array_shape(key));
    pieces.push_back({box, block_of(reshaped(array, layout.shape(box)))});
  }
  const auto options = tuples.empty() ? at::TensorOptions() : tuples.front().second.options();
  return store_pieces(type, sites, pieces, options, store, ownership);
}

std::vector<at::Tensor> block_arrays(const StoredRelation& relation) {
  std::vector<at::Tensor> out;
  for (const auto& [site, blocks] : relation.sites) {
    for (const Block& block : blocks) out.push_back(block.export_array());
  }
  return out;
}

bool shares_memory(const StoredRelation& relation, const at::Tensor& array) {
  for (const auto& [site, blocks] : relation.sites) {
    for (const Block& block : blocks) {
      if (block.format() == Format::kDense && Pin(block).array().is_alias_of(array)) return true;
    }
  }
  return false;
}

StoredRelation place_blocks(const std::vector<at::Tensor>& arrays, const ia::PhysicalType& type,
                            const std::vector<int64_t>& sites, BlockStore& store) {
  const Layout layout(type.relation);
  StoredRelation out{ia::shared(type), {}};
  size_t next = 0;
  for (const int64_t site : sites) {
    auto& blocks = out.sites[site];
    for (const Box& box : type.stored(site)) {
      JOINSUM_USER_CHECK(next < arrays.size(), "input: too few blocks: given=", arrays.size(), ", type=", type.text());
      const at::Tensor& array = arrays[next++];
      JOINSUM_USER_CHECK(array.sizes().vec() == layout.shape(box),
                         "input: block does not fit the relation: site=", site, ", box=", box.text(),
                         ", shape=", array.sizes().vec(), ", wanted=", layout.shape(box));
      blocks.push_back(store.share(array));
    }
  }
  JOINSUM_USER_CHECK(next == arrays.size(), "input: too many blocks: given=", arrays.size(), ", wanted=", next,
                     ", type=", type.text());
  return out;
}

namespace {

/// All stored pieces, replicas once.
std::vector<Piece> distinct_pieces(const StoredRelation& relation) {
  std::vector<Piece> pieces;
  std::set<Box> seen;
  const bool replicas = relation.type->placement.scattered() == nullptr;
  for (const auto& [site, blocks] : relation.sites) {
    std::set<Box> own;
    for (Piece& piece : pieces_of(relation.type->stored(site), blocks)) {
      if (replicas && seen.contains(piece.box)) continue;
      own.insert(piece.box);
      pieces.push_back(std::move(piece));
    }
    seen.merge(own);
  }
  return pieces;
}

}  // namespace

std::vector<std::pair<Key, at::Tensor>> tuples(const StoredRelation& relation) {
  const relation::RelationType& type = relation.type->relation;
  const Layout layout(type);
  JOINSUM_USER_CHECK(!relation.type->placement.pending(),
                     "tuples: relation is pending; broadcast or shuffle it first: type=", relation.type->text());
  std::vector<std::pair<Key, at::Tensor>> out;
  for (const Piece& piece : distinct_pieces(relation)) {
    for_each_key(piece.box, [&](const Key& key) {
      const Block block = layout.slice(piece.block, piece.box, Box::single(key));
      out.emplace_back(key, reshaped(block.export_array(), type.array_shape(key)));
    });
  }
  std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  return out;
}

at::Tensor whole_tensor(const StoredRelation& relation, BlockStore& store) {
  const relation::RelationType& type = relation.type->relation;
  JOINSUM_USER_CHECK(!relation.type->placement.pending(),
                     "to_tensor: relation is pending; broadcast or shuffle it first: type=", relation.type->text());
  const auto hole = type.first_hole();
  JOINSUM_USER_CHECK(!hole, "to_tensor: relation has a hole: key=", key_text(hole.value_or(Key{})));
  const auto duplicate = type.first_duplicate();
  JOINSUM_USER_CHECK(!duplicate, "to_tensor: key occurs twice: key=", key_text(duplicate.value_or(Key{})));
  for (int64_t d = 0; d < type.arity(); ++d) {
    const auto linked = static_cast<int64_t>(type.axes_of(d).size());
    JOINSUM_USER_CHECK(linked == 1 || type.frontier[d] <= 1,
                       "to_tensor: key dimension does not count the parts of one axis; aggregate or ",
                       "concat it, or name the axes: key dimension=", d, ", linked axes=", linked,
                       ", type=", type.text());
  }
  const Box all = Box::below(type.frontier);
  const auto pieces = distinct_pieces(relation);
  at::TensorOptions options;
  if (!pieces.empty()) options = pieces.front().block.options();
  Dims shape;
  for (const relation::Axis& axis : type.axes) shape.push_back(axis.extent);
  if (all.empty()) return at::empty(shape, options);
  return reshaped(assemble(type, {all}, pieces, options, store).front().export_array(), shape);
}

}  // namespace joinsum::runtime::storage

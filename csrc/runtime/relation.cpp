#include "runtime/relation.h"

#include <algorithm>
#include <set>

namespace joinsum::runtime {

Layout::Layout(const RelationType& relation) : relation_(relation) {
  for (int64_t d = 0; d < relation.arity(); ++d) {
    if (relation.axes_of(d).empty()) batch_dims_.push_back(d);
  }
}

Dims Layout::shape(const Box& box) const {
  Dims shape;
  for (const int64_t d : batch_dims_) shape.push_back(box.extent(d));
  for (const Axis& axis : relation_.axes) shape.push_back(axis.extent_over(box));
  return shape;
}

at::Tensor Layout::slice(const at::Tensor& array, const Box& stored, const Box& wanted) const {
  at::Tensor out = array;
  for (size_t i = 0; i < batch_dims_.size(); ++i) {
    const int64_t d = batch_dims_[i];
    out = out.narrow(static_cast<int64_t>(i), wanted.lower[d] - stored.lower[d], wanted.extent(d));
  }
  for (int64_t a = 0; a < relation_.rank(); ++a) {
    const Axis& axis = relation_.axes[a];
    if (!axis.linked()) continue;
    const int64_t begin = axis.cuts[wanted.lower[axis.key_dim]] - axis.cuts[stored.lower[axis.key_dim]];
    out = out.narrow(position_of_axis(a), begin, axis.extent_over(wanted));
  }
  return out;
}

namespace {

/// Occurrence `number` of `box`: cut out of the piece that contains it, or put together from the pieces inside it.
at::Tensor gather_pieces(const Layout& layout, const Box& box, size_t number, const std::vector<Piece>& pieces,
                         const at::TensorOptions& options) {
  for (const Piece& piece : pieces) {
    if (piece.box.contains(box) && number-- == 0) return layout.slice(piece.array, piece.box, box);
  }
  at::Tensor out = at::empty(layout.shape(box), options);
  int64_t covered = 0;
  for (const Piece& piece : pieces) {
    const Box part = piece.box.intersect(box);
    if (part.empty()) continue;
    const at::Tensor to = layout.slice(out, box, part);
    to.copy_(layout.slice(piece.array, piece.box, part));
    covered += to.numel();
  }
  JOINSUM_CHECK(covered == out.numel(), "box ", box.text(), " is covered by ", covered, " of ", out.numel(),
                " elements");
  return out;
}

}  // namespace

std::vector<at::Tensor> assemble(const RelationType& relation, const std::vector<Box>& stored,
                                 const std::vector<Piece>& pieces, const at::TensorOptions& options) {
  const Layout layout(relation);
  std::map<Box, std::vector<at::Tensor>> exact;
  for (const Piece& piece : pieces) exact[piece.box].push_back(piece.array);
  std::map<Box, size_t> taken;
  std::vector<at::Tensor> out;
  out.reserve(stored.size());
  for (const Box& box : stored) {
    if (relation.elements_over(box) == 0) {  // boxes without elements are not sent
      out.push_back(at::empty(layout.shape(box), options));
      continue;
    }
    const size_t number = taken[box]++;
    const auto found = exact.find(box);
    if (found == exact.end()) {
      out.push_back(gather_pieces(layout, box, number, pieces, options));
      continue;
    }
    JOINSUM_CHECK(number < found->second.size(), "too few tuples at ", box.text());
    out.push_back(found->second[number]);
  }
  return out;
}

namespace {

StoredRelation store_pieces(const ia::PhysicalType& type, const std::vector<int64_t>& sites,
                            const std::vector<Piece>& pieces, const at::TensorOptions& options, BlockStore& store,
                            bool copy) {
  StoredRelation out{type, {}};
  std::map<std::vector<Box>, std::vector<BlockHandle>> shared;
  for (const int64_t site : sites) {
    const auto boxes = type.stored(site);
    auto& blocks = shared[boxes];
    if (blocks.empty()) {
      for (const at::Tensor& array : assemble(type.relation, boxes, pieces, options)) {
        blocks.push_back(store.put(copy ? array.clone(at::MemoryFormat::Contiguous) : array));
      }
    }
    out.sites[site] = blocks;
  }
  return out;
}

}  // namespace

StoredRelation place_tensor(const at::Tensor& tensor, const ia::PhysicalType& type, const std::vector<int64_t>& sites,
                            BlockStore& store, bool copy) {
  const Box all = Box::below(type.relation.frontier);
  const Layout layout(type.relation);
  const Dims shape = layout.shape(all);
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  JOINSUM_USER_CHECK(type.relation.regular() && tensor.numel() == count,
                     "input: tensor does not fit the relation: shape=", tensor.sizes().vec(),
                     ", type=", type.relation.text());
  return store_pieces(type, sites, {{all, tensor.reshape(shape)}}, tensor.options(), store, copy);
}

StoredRelation retyped(const StoredRelation& relation, const ia::PhysicalType& type, BlockStore& store) {
  const Layout layout(type.relation);
  StoredRelation out{type, {}};
  std::map<BlockHandle, BlockHandle> viewed;
  for (const auto& [site, blocks] : relation.sites) {
    const auto boxes = type.stored(site);
    bool fits = boxes.size() == blocks.size() && boxes.size() <= 1;
    for (size_t i = 0; fits && i < boxes.size(); ++i) {
      BlockHandle& view = viewed[blocks[i]];
      const at::Tensor array = Pin(store, blocks[i]).tensor();
      const Dims shape = layout.shape(boxes[i]);
      fits = array.numel() == checked_product("retyped", shape);
      if (fits && view == nullptr) view = store.put(array.reshape(shape));
      out.sites[site].push_back(view);
    }
    JOINSUM_USER_CHECK(fits, "relation: blocks of another type hold other elements: site=", site,
                       ", type=", relation.type.text(), ", wanted=", type.text());
    out.sites.try_emplace(site);
  }
  return out;
}

StoredRelation place_tuples(const std::vector<std::pair<Key, at::Tensor>>& tuples, const ia::PhysicalType& type,
                            const std::vector<int64_t>& sites, BlockStore& store, bool copy) {
  const Layout layout(type.relation);
  std::vector<Piece> pieces;
  for (const auto& [key, array] : tuples) {
    const Box box = Box::single(key);
    JOINSUM_USER_CHECK(array.sizes().vec() == type.relation.array_shape(key),
                       "input: array does not fit the relation: key=", key_text(key), ", shape=", array.sizes().vec(),
                       ", wanted=", type.relation.array_shape(key));
    pieces.push_back({box, array.reshape(layout.shape(box))});
  }
  const auto options = tuples.empty() ? at::TensorOptions() : tuples.front().second.options();
  return store_pieces(type, sites, pieces, options, store, copy);
}

std::vector<at::Tensor> block_arrays(const StoredRelation& relation, BlockStore& store) {
  std::vector<at::Tensor> out;
  for (const auto& [site, blocks] : relation.sites) {
    for (const BlockHandle& block : blocks) out.push_back(Pin(store, block).tensor());
  }
  return out;
}

StoredRelation place_blocks(const std::vector<at::Tensor>& arrays, const ia::PhysicalType& type,
                            const std::vector<int64_t>& sites, BlockStore& store) {
  const Layout layout(type.relation);
  StoredRelation out{type, {}};
  size_t next = 0;
  for (const int64_t site : sites) {
    auto& blocks = out.sites[site];
    for (const Box& box : type.stored(site)) {
      JOINSUM_USER_CHECK(next < arrays.size(), "input: too few blocks: given=", arrays.size(), ", type=", type.text());
      const at::Tensor& array = arrays[next++];
      JOINSUM_USER_CHECK(array.sizes().vec() == layout.shape(box),
                         "input: block does not fit the relation: site=", site, ", box=", box.text(),
                         ", shape=", array.sizes().vec(), ", wanted=", layout.shape(box));
      blocks.push_back(store.put(array));
    }
  }
  JOINSUM_USER_CHECK(next == arrays.size(), "input: too many blocks: given=", arrays.size(), ", wanted=", next,
                     ", type=", type.text());
  return out;
}

namespace {

/// Every stored piece, replicas once.
std::vector<Piece> distinct_pieces(const StoredRelation& relation, BlockStore& store) {
  std::vector<Piece> pieces;
  std::set<Box> seen;
  const bool replicas = relation.type.placement.scattered() == nullptr;
  for (const auto& [site, blocks] : relation.sites) {
    const auto boxes = relation.type.stored(site);
    std::set<Box> here;
    for (size_t i = 0; i < boxes.size(); ++i) {
      if (replicas && seen.contains(boxes[i])) continue;
      here.insert(boxes[i]);
      pieces.push_back({boxes[i], store.pin(blocks[i])});
      store.unpin(blocks[i]);
    }
    seen.merge(here);
  }
  return pieces;
}

}  // namespace

std::vector<std::pair<Key, at::Tensor>> tuples(const StoredRelation& relation, BlockStore& store) {
  const RelationType& type = relation.type.relation;
  const Layout layout(type);
  JOINSUM_USER_CHECK(!relation.type.placement.pending(),
                     "tuples: relation is pending; broadcast or shuffle it first: type=", relation.type.text());
  std::vector<std::pair<Key, at::Tensor>> out;
  for (const Piece& piece : distinct_pieces(relation, store)) {
    for_each_key(piece.box, [&](const Key& key) {
      const at::Tensor array = layout.slice(piece.array, piece.box, Box::single(key));
      out.emplace_back(key, array.reshape(type.array_shape(key)));
    });
  }
  std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  return out;
}

at::Tensor whole_tensor(const StoredRelation& relation, BlockStore& store) {
  const RelationType& type = relation.type.relation;
  JOINSUM_USER_CHECK(!relation.type.placement.pending(),
                     "to_tensor: relation is pending; broadcast or shuffle it first: type=", relation.type.text());
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
  const auto pieces = distinct_pieces(relation, store);
  at::TensorOptions options;
  if (!pieces.empty()) options = pieces.front().array.options();
  Dims shape;
  for (const Axis& axis : type.axes) shape.push_back(axis.extent);
  if (all.empty()) return at::empty(shape, options);
  return assemble(type, {all}, pieces, options).front().reshape(shape);
}

}  // namespace joinsum::runtime

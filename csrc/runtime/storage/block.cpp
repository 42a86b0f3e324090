#include "runtime/storage/block.h"

#include <ATen/TensorUtils.h>

#include "base/check.h"
#include "runtime/storage/block_store.h"
#include "runtime/storage/sparse_array.h"

namespace joinsum::runtime::storage {

Block Block::narrow(int64_t axis, int64_t begin, int64_t extent) const {
  if (begin == 0 && extent == geometry().size(axis)) return *this;
  return {buffer_, geometry().narrow(axis, begin, extent)};
}

std::optional<Block> Block::viewed_as(at::IntArrayRef shape) const {
  const at::Tensor& own = geometry();
  if (own.sizes() == shape) return *this;
  if (!at::detail::computeStride(own.sizes(), own.strides(), shape)) return std::nullopt;
  return Block(buffer_, own.view(shape));
}

bool Block::is_same_as(const Block& other) const {
  if (memory() != other.memory()) return false;
  const at::Tensor& own = geometry();
  const at::Tensor& its = other.geometry();
  return own.storage_offset() == its.storage_offset() && own.sizes() == its.sizes() && own.strides() == its.strides();
}

void Block::append_identity(std::vector<int64_t>& out) const {
  const at::Tensor& own = geometry();
  out.push_back(reinterpret_cast<int64_t>(buffer_->memory()));
  out.push_back(own.storage_offset());
  for (const auto& sizes : {own.sizes(), own.strides()}) out.insert(out.end(), sizes.begin(), sizes.end());
}

Pin::Pin(const Block& block) : buffer_(block.buffer_) {
  buffer_->pin();
  try {
    array_ = buffer_->array(block.geometry());
  } catch (...) {
    buffer_->unpin();
    throw;
  }
}

Pin::~Pin() {
  if (buffer_ == nullptr) return;
  array_.reset();
  buffer_->unpin();
}

namespace {

class CallersBuffer final : public Buffer {
 public:
  explicit CallersBuffer(at::Tensor array) : array_(std::move(array)) {}
  const at::Tensor& geometry() const override { return array_; }
  at::Device device() const override { return array_.device(); }
  const void* memory() const override { return array_.storage().unsafeGetStorageImpl(); }
  bool exclusive() const override { return false; }
  at::Tensor array(const at::Tensor& view) override { return view; }

 private:
  at::Tensor array_;
};

/// Elements with their indices. They are not written to, so that views are cut out where they are pinned.
class SparseBuffer final : public Buffer {
 public:
  SparseBuffer(at::Tensor array, std::function<void(const Address&)> released)
      : array_(as_sparse_array(array)), geometry_(geometry_of(array_)), released_(std::move(released)) {}
  ~SparseBuffer() override {
    if (released_) released_({memory(), 0});
  }
  Format format() const override { return Format::kSparse; }
  const at::Tensor& geometry() const override { return geometry_; }
  int64_t bytes(const at::Tensor& view) const override { return stored_bytes(part_of(array_, view)); }
  at::Device device() const override { return array_.device(); }
  const void* memory() const override { return this; }
  bool exclusive() const override { return false; }
  at::Tensor array(const at::Tensor& view) override { return part_of(array_, view); }

 private:
  at::Tensor array_;
  at::Tensor geometry_;
  std::function<void(const Address&)> released_;
};

/// A row-major copy in `shape` of the blocks' elements, one block after another.
Block copied(const std::vector<Block>& blocks, at::IntArrayRef shape, BlockStore& store) {
  Block out = store.put(store.allocate(shape, blocks.front().options()));
  const Block flat = *out.viewed_as({out.elements()});
  int64_t begin = 0;
  for (const Block& block : blocks) {
    const Pin from(block);
    const Pin to(flat.narrow(0, begin, block.elements()));
    to.array().view(from.array().sizes()).copy_(from.array());
    begin += block.elements();
  }
  return out;
}

/// The block in another shape, copied where it cannot be a view.
Block reshaped(const Block& block, at::IntArrayRef shape, BlockStore& store) {
  if (const auto view = block.viewed_as(shape)) return *view;
  return copied({block}, shape, store);
}

}  // namespace

Block sparse_block(at::Tensor array, std::function<void(const Address&)> released) {
  return Block(std::make_shared<SparseBuffer>(std::move(array), std::move(released)));
}

Block block_of(at::Tensor array) {
  if (array.is_sparse()) return sparse_block(std::move(array));
  return Block(std::make_shared<CallersBuffer>(std::move(array)));
}

void copy(const Block& from, const Block& to) {
  const Pin source(from);
  const Pin target(to);
  target.array().copy_(source.array());
}

Block pack(const std::vector<Block>& blocks, int64_t begin, int64_t end, BlockStore& store) {
  JOINSUM_CHECK(!blocks.empty(), "no blocks to pack");
  if (blocks.size() == 1 && begin == 0 && end == blocks[0].elements()) return blocks[0];
  int64_t elements = 0;
  for (const Block& block : blocks) elements += block.elements();
  const Block flat = blocks.size() == 1 ? reshaped(blocks[0], {elements}, store) : copied(blocks, {elements}, store);
  return flat.narrow(0, begin, end - begin);
}

std::vector<Block> unpack(const Block& packed, const Dims& shape, BlockStore& store) {
  const int64_t each = c10::multiply_integers(shape);
  if (packed.elements() == each) return {reshaped(packed, shape, store)};
  JOINSUM_CHECK(each > 0 && packed.elements() % each == 0, "elements=", packed.elements(), ", shape=", shape);
  const Block flat = reshaped(packed, {packed.elements()}, store);
  std::vector<Block> out;
  for (int64_t begin = 0; begin < flat.elements(); begin += each) {
    out.push_back(reshaped(flat.narrow(0, begin, each), shape, store));
  }
  return out;
}

Block concatenate(const std::vector<Block>& blocks, const Dims& shape, BlockStore& store) {
  return blocks.size() == 1 ? reshaped(blocks[0], shape, store) : copied(blocks, shape, store);
}

}  // namespace joinsum::runtime::storage

#pragma once

#include <memory>

#include <ATen/ATen.h>

namespace joinsum::runtime {

class BlockStore;

/// An array kept by a store; freed with its last handle.
class StoredBlock {
 public:
  StoredBlock(std::shared_ptr<BlockStore> store, at::Tensor tensor);
  ~StoredBlock();
  StoredBlock(const StoredBlock&) = delete;
  StoredBlock& operator=(const StoredBlock&) = delete;
  int64_t bytes() const { return bytes_; }

 private:
  friend class BlockStore;
  friend class MemoryStore;
  std::shared_ptr<BlockStore> store_;
  at::Tensor tensor_;
  int64_t bytes_;
};
using BlockHandle = std::shared_ptr<StoredBlock>;

/// Keeps the arrays of relations. Plans and the executor reach an array only between `pin` and `unpin`, so that other
/// stores may page it out or keep it in another format.
class BlockStore : public std::enable_shared_from_this<BlockStore> {
 public:
  virtual ~BlockStore() = default;
  virtual BlockHandle put(at::Tensor tensor) = 0;
  /// An array with undefined contents to compute a block into.
  virtual at::Tensor allocate(at::IntArrayRef shape, const at::TensorOptions& options) = 0;
  virtual at::Tensor pin(const BlockHandle& block) = 0;
  virtual void unpin(const BlockHandle& block) = 0;
  /// Bytes kept now, and the most since `reset_peak`. Blocks that are views of one array count each.
  virtual int64_t bytes() const = 0;
  virtual int64_t peak_bytes() const = 0;
  virtual void reset_peak() = 0;

 protected:
  friend class StoredBlock;
  /// Takes back the array of a block whose last handle goes.
  virtual void release(StoredBlock& block) = 0;
};

/// Keeps every array in memory as it is. Arrays on the CPU that nobody else sees are used again for later blocks of
/// their size: fresh pages from the system cost more than what is computed into them.
std::shared_ptr<BlockStore> make_memory_store();

/// A block's array, pinned while this lives.
class Pin {
 public:
  Pin(BlockStore& store, BlockHandle block) : store_(store), block_(std::move(block)), tensor_(store_.pin(block_)) {}
  ~Pin() { store_.unpin(block_); }
  Pin(const Pin&) = delete;
  Pin& operator=(const Pin&) = delete;
  const at::Tensor& tensor() const { return tensor_; }

 private:
  BlockStore& store_;
  BlockHandle block_;
  at::Tensor tensor_;
};

}  // namespace joinsum::runtime

#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "base/arena.h"
#include "runtime/storage/block.h"

namespace joinsum::runtime::storage {

/// Holds the blocks of relations. A store that pages blocks out, or has them in another format, is another class.
class BlockStore : public std::enable_shared_from_this<BlockStore> {
 public:
  virtual ~BlockStore() = default;
  /// The name that `make_store` takes.
  virtual std::string name() const = 0;
  /// A block of an array that a kernel has computed, or of a view of blocks that are pinned. The caller uses the array
  /// no longer.
  virtual Block put(at::Tensor array) = 0;
  /// A block of an array that others use too: they and the store see each other's writes.
  virtual Block share(at::Tensor array) = 0;
  /// An array with undefined contents to compute a block into.
  virtual at::Tensor allocate(at::IntArrayRef shape, const at::TensorOptions& options) = 0;
  /// Where arrays come from that kernels make beside blocks; null where the store has no memory of its own.
  virtual std::shared_ptr<Arena> arena() const { return nullptr; }
  /// Bytes of freed blocks and arrays that the store has not returned to the system, for later ones.
  virtual int64_t pooled_bytes() const { return 0; }
  /// Returns them.
  virtual void release_pool() {}
  /// Blocks and freed memory together take at most these bytes from now on, unless blocks alone take more.
  virtual void set_budget(int64_t /*bytes*/) {}

  /// Bytes of blocks now, and their maximum since `reset_peak`. Blocks that begin at one address count once.
  int64_t bytes() const;
  int64_t peak_bytes() const;
  void reset_peak();

 protected:
  /// With `mutex_` locked.
  void count(const Address& address, int64_t bytes);
  void discount(const Address& address) { bytes_.remove(address); }
  /// A block of a sparse array, counted.
  Block put_sparse(at::Tensor array);

  mutable std::mutex mutex_;
  BlockBytes bytes_;
  int64_t peak_ = 0;
};

/// Holds every block in memory where it was put. Memory on the CPU comes from one arena, which caches what is freed
/// within the budget.
std::shared_ptr<BlockStore> make_memory_store();

/// For tests of pins: moves a block to other memory whenever its last pin ends, and fills the memory that it leaves
/// with bytes of 255, which are no numbers as floats. Arrays that users see (shared and exported ones) stay where they
/// are.
std::shared_ptr<BlockStore> make_relocating_store();

/// `memory` or `relocating`; raises PlanError for another name.
std::shared_ptr<BlockStore> make_store(const std::string& name);
std::vector<std::string> store_names();

}  // namespace joinsum::runtime::storage

#include <algorithm>
#include <limits>

#include "runtime/storage/block_store.h"
#include "runtime/storage/torch_allocations.h"

namespace joinsum::runtime::storage {
namespace {

class MemoryStore final : public BlockStore {
 public:
  std::string name() const override { return "memory"; }
  Block put(at::Tensor array) override;
  Block share(at::Tensor array) override { return put(std::move(array)); }
  at::Tensor allocate(at::IntArrayRef shape, const at::TensorOptions& options) override;
  std::shared_ptr<Arena> arena() const override { return arena_; }
  int64_t pooled_bytes() const override { return arena_->cached_bytes(); }
  void release_pool() override { arena_->shrink_to(0); }
  void set_budget(int64_t bytes) override;

 private:
  class MemoryBuffer;
  void release(at::Tensor array);
  void keep_within_budget();

  std::shared_ptr<Arena> arena_ = Arena::make();
  int64_t budget_ = std::numeric_limits<int64_t>::max();
};

class MemoryStore::MemoryBuffer final : public Buffer {
 public:
  MemoryBuffer(std::shared_ptr<MemoryStore> store, at::Tensor array)
      : store_(std::move(store)), array_(std::move(array)) {}
  ~MemoryBuffer() override { store_->release(std::move(array_)); }
  const at::Tensor& geometry() const override { return array_; }
  at::Device device() const override { return array_.device(); }
  const void* memory() const override { return array_.storage().unsafeGetStorageImpl(); }
  bool exclusive() const override { return array_.use_count() == 1 && array_.storage().use_count() == 1; }
  at::Tensor array(const at::Tensor& view) override { return view; }
  /// Another tensor of the memory, with the same version counter: of one that Python has seen, torch counts a reference
  /// as long as it lives.
  at::Tensor export_array(const at::Tensor& view) override {
    const c10::TensorImpl& own = *view.unsafeGetTensorImpl();
    return at::Tensor(own.shallow_copy_and_detach(own.version_counter(), /*allow_tensor_metadata_change=*/true));
  }

 private:
  std::shared_ptr<MemoryStore> store_;
  at::Tensor array_;
};

Block MemoryStore::put(at::Tensor array) {
  if (array.is_sparse()) return put_sparse(std::move(array));
  auto store = std::static_pointer_cast<MemoryStore>(shared_from_this());
  Block block(std::make_shared<MemoryBuffer>(std::move(store), std::move(array)));
  const std::lock_guard lock(mutex_);
  count(block.address(), block.bytes());
  keep_within_budget();
  return block;
}

at::Tensor MemoryStore::allocate(at::IntArrayRef shape, const at::TensorOptions& options) {
  const TorchAllocations from(arena_);
  return at::empty(shape, options);
}

void MemoryStore::release(at::Tensor array) {
  {
    const std::lock_guard lock(mutex_);
    discount({array.storage().unsafeGetStorageImpl(), array.storage_offset()});
  }
  array.reset();  // outside the lock: freeing an array that Python knows waits for Python's
  const std::lock_guard lock(mutex_);
  keep_within_budget();
}

void MemoryStore::set_budget(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  budget_ = bytes;
  keep_within_budget();
}

/// With `mutex_` locked.
void MemoryStore::keep_within_budget() {
  if (budget_ < std::numeric_limits<int64_t>::max()) arena_->shrink_to(std::max<int64_t>(budget_ - bytes_.total(), 0));
}

}  // namespace

std::shared_ptr<BlockStore> make_memory_store() { return std::make_shared<MemoryStore>(); }

}  // namespace joinsum::runtime::storage

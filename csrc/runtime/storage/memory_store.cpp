#include <algorithm>
#include <limits>

#include "runtime/storage/array_pool.h"
#include "runtime/storage/block_store.h"

namespace joinsum::runtime::storage {
namespace {

class MemoryStore final : public BlockStore {
 public:
  std::string name() const override { return "memory"; }
  Block put(at::Tensor array) override;
  Block share(at::Tensor array) override { return put(std::move(array)); }
  at::Tensor allocate(at::IntArrayRef shape, const at::TensorOptions& options) override;
  int64_t pooled_bytes() const override;
  void release_pool() override;
  void set_budget(int64_t bytes) override;

 private:
  class MemoryBuffer;
  void release(at::Tensor array);
  /// Bytes that freed arrays may take beside blocks, and a block of that size that is about to be computed.
  int64_t room(int64_t block_bytes = 0) const {
    return std::max<int64_t>(std::min(most_, budget_) - bytes_.total() - block_bytes, 0);
  }

  ArrayPool pool_;
  int64_t most_ = 0;  ///< bytes that blocks have taken
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
  auto store = std::static_pointer_cast<MemoryStore>(shared_from_this());
  Block block(std::make_shared<MemoryBuffer>(std::move(store), std::move(array)));
  std::vector<at::Tensor> removed;  // freed after the lock
  const std::lock_guard lock(mutex_);
  count(block.address(), block.bytes());
  most_ = std::max(most_, bytes_.total());
  removed = pool_.shrink_to(room());
  return block;
}

at::Tensor MemoryStore::allocate(at::IntArrayRef shape, const at::TensorOptions& options) {
  const int64_t bytes = c10::multiply_integers(shape) * static_cast<int64_t>(options.dtype().itemsize());
  if (options.device().is_cpu() && bytes > 0) {
    std::vector<at::Tensor> removed;  // freed after the lock
    const std::lock_guard lock(mutex_);
    if (at::Tensor array = pool_.take(bytes, options.dtype().toScalarType()); array.defined()) {
      array.unsafeGetTensorImpl()->set_sizes_contiguous(shape);
      return array;
    }
    removed = pool_.shrink_to(room(bytes));
  }
  return at::empty(shape, options);
}

/// Arrays that are views, or that others see, are freed when the last of these goes.
void MemoryStore::release(at::Tensor array) {
  const auto bytes = static_cast<int64_t>(array.nbytes());
  const bool whole = array.is_cpu() && array.is_contiguous() && array.use_count() == 1 &&
                     array.storage().use_count() == 1 && static_cast<int64_t>(array.storage().nbytes()) == bytes &&
                     array.storage().resizable() && !array.is_neg() && !array.is_conj();
  std::vector<at::Tensor> removed;  // freed after the lock: freeing an array that Python knows waits for its lock
  const std::lock_guard lock(mutex_);
  discount({array.storage().unsafeGetStorageImpl(), array.storage_offset()});
  if (!whole || bytes == 0 || bytes > room()) {
    removed.push_back(std::move(array));
    return;
  }
  pool_.add(std::move(array));
  removed = pool_.shrink_to(room());
}

int64_t MemoryStore::pooled_bytes() const {
  const std::lock_guard lock(mutex_);
  return pool_.bytes();
}

void MemoryStore::release_pool() {
  std::vector<at::Tensor> removed;
  const std::lock_guard lock(mutex_);
  removed = pool_.shrink_to(0);
}

void MemoryStore::set_budget(int64_t bytes) {
  std::vector<at::Tensor> removed;
  const std::lock_guard lock(mutex_);
  budget_ = bytes;
  removed = pool_.shrink_to(room());
}

}  // namespace

std::shared_ptr<BlockStore> make_memory_store() { return std::make_shared<MemoryStore>(); }

}  // namespace joinsum::runtime::storage

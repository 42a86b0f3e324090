#include "runtime/block_store.h"

#include <algorithm>
#include <map>
#include <mutex>

namespace joinsum::runtime {

StoredBlock::StoredBlock(std::shared_ptr<BlockStore> store, at::Tensor tensor)
    : store_(std::move(store)), tensor_(std::move(tensor)), bytes_(static_cast<int64_t>(tensor_.nbytes())) {}

StoredBlock::~StoredBlock() { store_->release(*this); }

class MemoryStore final : public BlockStore {
 public:
  BlockHandle put(at::Tensor tensor) override {
    auto block = std::make_shared<StoredBlock>(shared_from_this(), std::move(tensor));
    const std::lock_guard lock(mutex_);
    bytes_ += block->bytes();
    peak_ = std::max(peak_, bytes_);
    most_ = std::max(most_, bytes_);
    return block;
  }

  at::Tensor allocate(at::IntArrayRef shape, const at::TensorOptions& options) override {
    const int64_t bytes = c10::multiply_integers(shape) * static_cast<int64_t>(options.dtype().itemsize());
    if (options.device().is_cpu() && bytes >= kLeastReused) {
      const std::lock_guard lock(mutex_);
      const auto found = free_.find({bytes, options.dtype().toScalarType()});
      if (found != free_.end()) {
        at::Tensor array = std::move(found->second);
        free_.erase(found);
        free_bytes_ -= bytes;
        return array.view(shape);
      }
    }
    return at::empty(shape, options);
  }

  at::Tensor pin(const BlockHandle& block) override { return block->tensor_; }
  void unpin(const BlockHandle&) override {}
  int64_t bytes() const override { return locked(bytes_); }
  int64_t peak_bytes() const override { return locked(peak_); }
  void reset_peak() override {
    const std::lock_guard lock(mutex_);
    peak_ = bytes_;
  }

 protected:
  void release(StoredBlock& block) override {
    at::Tensor array = std::move(block.tensor_);  // goes after the lock: a tensor that Python knows waits for the GIL
    const std::lock_guard lock(mutex_);
    bytes_ -= block.bytes();
    const bool whole = array.is_cpu() && array.is_contiguous() && array.use_count() == 1 &&
                       array.storage().use_count() == 1 &&
                       static_cast<int64_t>(array.storage().nbytes()) == block.bytes() && array.storage().resizable();
    if (!whole || block.bytes() < kLeastReused || free_bytes_ + block.bytes() > most_) return;
    free_bytes_ += block.bytes();
    free_.emplace(Size{block.bytes(), array.scalar_type()}, std::move(array));
  }

 private:
  using Size = std::pair<int64_t, at::ScalarType>;
  static constexpr int64_t kLeastReused = 1 << 16;

  int64_t locked(const int64_t& value) const {
    const std::lock_guard lock(mutex_);
    return value;
  }

  mutable std::mutex mutex_;
  int64_t bytes_ = 0;
  int64_t peak_ = 0;
  int64_t most_ = 0;  // ever kept: free arrays never take more
  int64_t free_bytes_ = 0;
  std::multimap<Size, at::Tensor> free_;
};

std::shared_ptr<BlockStore> make_memory_store() { return std::make_shared<MemoryStore>(); }

}  // namespace joinsum::runtime

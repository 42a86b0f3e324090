#include "runtime/block_store.h"

#include <algorithm>
#include <atomic>

namespace joinsum::runtime {

StoredBlock::StoredBlock(std::shared_ptr<BlockStore> store, at::Tensor tensor)
    : store_(std::move(store)), tensor_(std::move(tensor)), bytes_(static_cast<int64_t>(tensor_.nbytes())) {}

StoredBlock::~StoredBlock() { store_->release(*this); }

class MemoryStore final : public BlockStore {
 public:
  BlockHandle put(at::Tensor tensor) override {
    auto block = std::make_shared<StoredBlock>(shared_from_this(), std::move(tensor));
    const int64_t now = bytes_ += block->bytes();
    int64_t peak = peak_;
    while (now > peak && !peak_.compare_exchange_weak(peak, now)) {
    }
    return block;
  }
  at::Tensor pin(const BlockHandle& block) override { return block->tensor_; }
  void unpin(const BlockHandle&) override {}
  int64_t bytes() const override { return bytes_; }
  int64_t peak_bytes() const override { return peak_; }
  void reset_peak() override { peak_ = bytes_.load(); }

 protected:
  void release(const StoredBlock& block) override { bytes_ -= block.bytes(); }

 private:
  std::atomic<int64_t> bytes_ = 0;
  std::atomic<int64_t> peak_ = 0;
};

std::shared_ptr<BlockStore> make_memory_store() { return std::make_shared<MemoryStore>(); }

}  // namespace joinsum::runtime

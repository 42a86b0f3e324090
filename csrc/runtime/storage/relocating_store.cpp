#include <unordered_map>

#include <c10/core/GradMode.h>

#include "base/check.h"
#include "runtime/storage/block_store.h"

namespace joinsum::runtime::storage {
namespace {

constexpr int64_t kPoison = 255;

/// The bytes of a storage as an array.
at::Tensor bytes_of(const c10::Storage& storage) {
  const auto bytes = static_cast<int64_t>(storage.nbytes());
  return at::empty({0}, at::TensorOptions().dtype(at::kByte).device(storage.device())).set_(storage, 0, {bytes}, {1});
}

/// Memory that moves as a whole, and all blocks in it.
struct Region {
  c10::Storage storage;
  int64_t pins = 0;
  bool exported = false;  ///< to arrays that others may still hold

  bool seen_outside() const { return exported && storage.use_count() > 1; }

  void relocate() {
    const c10::NoGradGuard no_grad;
    const at::Tensor old = bytes_of(storage);
    storage = old.clone().storage();
    old.fill_(kPoison);
  }
};

class RelocatingStore final : public BlockStore {
 public:
  std::string name() const override { return "relocating"; }
  Block put(at::Tensor array) override { return array.is_sparse() ? put_sparse(array) : insert(array, false); }
  Block share(at::Tensor array) override { return array.is_sparse() ? put_sparse(array) : insert(array, true); }
  at::Tensor allocate(at::IntArrayRef shape, const at::TensorOptions& options) override {
    return at::empty(shape, options);
  }

 private:
  class RelocatingBuffer;
  Block insert(const at::Tensor& array, bool exported);
  void relocate(const std::shared_ptr<Region>& region);

  std::unordered_map<const void*, std::weak_ptr<Region>> regions_;  ///< by their present storage
};

class RelocatingStore::RelocatingBuffer final : public Buffer {
 public:
  RelocatingBuffer(std::shared_ptr<RelocatingStore> store, std::shared_ptr<Region> region, const at::Tensor& array)
      : store_(std::move(store)), region_(std::move(region)) {
    const c10::NoGradGuard no_grad;
    const auto whole = static_cast<int64_t>(array.storage().nbytes() / array.itemsize());
    geometry_ = at::empty({whole}, array.options().device(at::kMeta))
                    .as_strided(array.sizes(), array.strides(), array.storage_offset());
    store_->count(address(), static_cast<int64_t>(array.nbytes()));
  }
  ~RelocatingBuffer() override {
    const std::lock_guard lock(store_->mutex_);
    store_->discount(address());
    if (region_.use_count() == 1) store_->regions_.erase(region_->storage.unsafeGetStorageImpl());
  }
  const at::Tensor& geometry() const override { return geometry_; }
  at::Device device() const override { return region_->storage.device(); }
  const void* memory() const override { return region_.get(); }
  Address address() const { return {memory(), geometry_.storage_offset()}; }
  bool exclusive() const override { return region_.use_count() == 1 && !region_->seen_outside(); }

  void pin() override {
    const std::lock_guard lock(store_->mutex_);
    ++region_->pins;
  }
  void unpin() noexcept override {
    const std::lock_guard lock(store_->mutex_);
    if (--region_->pins == 0 && !region_->seen_outside()) store_->relocate(region_);
  }
  at::Tensor array(const at::Tensor& view) override {
    const c10::NoGradGuard no_grad;
    return at::empty({0}, view.options().device(device()))
        .set_(region_->storage, view.storage_offset(), view.sizes(), view.strides());
  }
  at::Tensor export_array(const at::Tensor& view) override {
    const std::lock_guard lock(store_->mutex_);
    region_->exported = true;
    return array(view);
  }

 private:
  std::shared_ptr<RelocatingStore> store_;
  std::shared_ptr<Region> region_;
  at::Tensor geometry_;
};

Block RelocatingStore::insert(const at::Tensor& array, bool exported) {
  const std::lock_guard lock(mutex_);
  std::weak_ptr<Region>& known = regions_[array.storage().unsafeGetStorageImpl()];
  std::shared_ptr<Region> region = known.lock();
  if (region == nullptr) {
    region = std::make_shared<Region>(array.storage());
    known = region;
  }
  region->exported = region->exported || exported;
  auto store = std::static_pointer_cast<RelocatingStore>(shared_from_this());
  return Block(std::make_shared<RelocatingBuffer>(std::move(store), std::move(region), array));
}

void RelocatingStore::relocate(const std::shared_ptr<Region>& region) {
  regions_.erase(region->storage.unsafeGetStorageImpl());
  region->relocate();
  regions_[region->storage.unsafeGetStorageImpl()] = region;
}

}  // namespace

std::shared_ptr<BlockStore> make_relocating_store() { return std::make_shared<RelocatingStore>(); }

}  // namespace joinsum::runtime::storage

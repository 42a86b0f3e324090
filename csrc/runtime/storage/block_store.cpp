#include "runtime/storage/block_store.h"

#include <algorithm>

#include "base/check.h"

namespace joinsum::runtime::storage {
namespace {

struct StoreRow {
  const char* name;
  std::shared_ptr<BlockStore> (*make)();
};
constexpr StoreRow kStores[] = {{"memory", &make_memory_store}, {"relocating", &make_relocating_store}};

}  // namespace

int64_t BlockStore::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_.total();
}

int64_t BlockStore::peak_bytes() const {
  const std::lock_guard lock(mutex_);
  return peak_;
}

void BlockStore::reset_peak() {
  const std::lock_guard lock(mutex_);
  peak_ = bytes_.total();
}

void BlockStore::count(const Address& address, int64_t bytes) {
  bytes_.add(address, bytes);
  peak_ = std::max(peak_, bytes_.total());
}

Block BlockStore::put_sparse(at::Tensor array) {
  Block block = sparse_block(std::move(array), [store = shared_from_this()](const Address& address) {
    const std::lock_guard lock(store->mutex_);
    store->discount(address);
  });
  const std::lock_guard lock(mutex_);
  count(block.address(), block.bytes());
  return block;
}

std::vector<std::string> store_names() {
  std::vector<std::string> names;
  for (const StoreRow& row : kStores) names.emplace_back(row.name);
  return names;
}

std::shared_ptr<BlockStore> make_store(const std::string& name) {
  const auto* row =
      std::find_if(std::begin(kStores), std::end(kStores), [&](const auto& each) { return each.name == name; });
  std::string choices;
  for (const std::string& each : store_names()) choices += (choices.empty() ? "" : ", ") + each;
  JOINSUM_USER_CHECK(row != std::end(kStores), "init: no store of that name: store=", name, ", choices=", choices);
  return row->make();
}

}  // namespace joinsum::runtime::storage

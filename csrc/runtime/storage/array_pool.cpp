#include "runtime/storage/array_pool.h"

#include "base/dims.h"

namespace joinsum::runtime::storage {

size_t ArrayPool::Hash::operator()(const Size& size) const {
  return hash_mix(static_cast<uint64_t>(size.first), static_cast<uint64_t>(size.second));
}

ArrayPool::Arrays& ArrayPool::used(const Size& size) {
  const auto [at, fresh] = sizes_.try_emplace(size);
  if (fresh) {
    at->second.place = recent_.insert(recent_.begin(), size);
  } else {
    recent_.splice(recent_.begin(), recent_, at->second.place);
  }
  return at->second;
}

at::Tensor ArrayPool::take(int64_t bytes, at::ScalarType type) {
  const auto found = sizes_.find({bytes, type});
  if (found == sizes_.end() || found->second.arrays.empty()) return {};
  Arrays& same = used(found->first);
  at::Tensor array = std::move(same.arrays.back());
  same.arrays.pop_back();
  bytes_ -= bytes;
  return array;
}

void ArrayPool::add(at::Tensor array) {
  const auto bytes = static_cast<int64_t>(array.nbytes());
  bytes_ += bytes;
  const auto type = array.scalar_type();
  used({bytes, type}).arrays.push_back(std::move(array));
}

std::vector<at::Tensor> ArrayPool::shrink_to(int64_t bytes) {
  std::vector<at::Tensor> removed;
  while (!recent_.empty()) {
    const auto oldest = sizes_.find(recent_.back());
    std::vector<at::Tensor>& arrays = oldest->second.arrays;
    if (arrays.empty()) {
      recent_.pop_back();
      sizes_.erase(oldest);
      continue;
    }
    if (bytes_ <= bytes) break;
    removed.push_back(std::move(arrays.back()));
    arrays.pop_back();
    bytes_ -= oldest->first.first;
  }
  return removed;
}

}  // namespace joinsum::runtime::storage

#include "runtime/storage/array_pool.h"

namespace joinsum::runtime::storage {

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
  if (found == sizes_.end()) return {};
  Arrays& same = used(found->first);
  at::Tensor array = std::move(same.arrays.back());
  same.arrays.pop_back();
  bytes_ -= bytes;
  if (same.arrays.empty()) forget(found);
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
  while (bytes_ > bytes) {
    const auto oldest = sizes_.find(recent_.back());
    std::vector<at::Tensor>& arrays = oldest->second.arrays;
    removed.push_back(std::move(arrays.back()));
    arrays.pop_back();
    bytes_ -= oldest->first.first;
    if (arrays.empty()) forget(oldest);
  }
  return removed;
}

void ArrayPool::forget(std::map<Size, Arrays>::iterator size) {
  recent_.erase(size->second.place);
  sizes_.erase(size);
}

}  // namespace joinsum::runtime::storage

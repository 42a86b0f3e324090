#include "runtime/storage/block_bytes.h"

#include <algorithm>

#include "base/check.h"
#include "base/dims.h"

namespace joinsum::runtime::storage {

size_t BlockBytes::Hash::operator()(const Address& address) const {
  return hash_mix(reinterpret_cast<uintptr_t>(address.first), static_cast<uint64_t>(address.second));
}

void BlockBytes::add(const Address& address, int64_t bytes) {
  Array& array = arrays_[address];
  ++array.blocks;
  total_ += std::max<int64_t>(bytes - array.bytes, 0);
  array.bytes = std::max(array.bytes, bytes);
}

void BlockBytes::remove(const Address& address) {
  const auto found = arrays_.find(address);
  JOINSUM_CHECK(found != arrays_.end(), "a block is removed that was not added");
  if (--found->second.blocks > 0) return;
  total_ -= found->second.bytes;
  arrays_.erase(found);
}

}  // namespace joinsum::runtime::storage

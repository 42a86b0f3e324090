#pragma once

#include <cstdint>
#include <memory_resource>
#include <unordered_map>
#include <utility>

namespace joinsum::runtime::storage {

/// Where a block's elements begin: its memory, and a position there.
using Address = std::pair<const void*, int64_t>;

/// Bytes of blocks. Those that begin at one address are one array: a result that was written over an operand, or a
/// shard that stayed where it was. Not locked.
class BlockBytes {
 public:
  BlockBytes() = default;
  BlockBytes(const BlockBytes&) = delete;
  BlockBytes& operator=(const BlockBytes&) = delete;
  void add(const Address& address, int64_t bytes);
  /// Removes a block that was added.
  void remove(const Address& address);
  int64_t total() const { return total_; }

 private:
  struct Array {
    int64_t blocks = 0;
    int64_t bytes = 0;
  };
  struct Hash {
    size_t operator()(const Address& address) const;
  };
  std::pmr::unsynchronized_pool_resource nodes_;
  std::pmr::unordered_map<Address, Array, Hash> arrays_{&nodes_};
  int64_t total_ = 0;
};

}  // namespace joinsum::runtime::storage

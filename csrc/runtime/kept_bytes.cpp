#include "runtime/kept_bytes.h"

#include <algorithm>

namespace joinsum::runtime {

void KeptBytes::add(const StoredRelation& relation, BlockStore& store) {
  for (const auto& [site, blocks] : relation.sites) {
    Site& keeper = sites_[site];
    for (const BlockHandle& block : blocks) {
      Array& array = keeper.arrays[Pin(store, block).tensor().data_ptr()];
      ++array.blocks;
      keeper.bytes += std::max<int64_t>(block->bytes() - array.bytes, 0);
      array.bytes = std::max(array.bytes, block->bytes());
    }
  }
}

void KeptBytes::remove(const StoredRelation& relation, BlockStore& store) {
  for (const auto& [site, blocks] : relation.sites) {
    Site& keeper = sites_.at(site);
    for (const BlockHandle& block : blocks) {
      const auto found = keeper.arrays.find(Pin(store, block).tensor().data_ptr());
      JOINSUM_CHECK(found != keeper.arrays.end(), "site ", site, " does not keep a block that is removed");
      if (--found->second.blocks > 0) continue;
      keeper.bytes -= found->second.bytes;
      keeper.arrays.erase(found);
    }
  }
}

int64_t KeptBytes::of_busiest_site(const ReceivedBytes& received) const {
  int64_t most = 0;
  for (const auto& [site, keeper] : sites_) {
    const auto messages = received.find(site);
    most = std::max(most, keeper.bytes + (messages != received.end() ? messages->second : 0));
  }
  return most;
}

}  // namespace joinsum::runtime

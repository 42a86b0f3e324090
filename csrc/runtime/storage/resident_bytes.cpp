#include "runtime/storage/resident_bytes.h"

#include <algorithm>

namespace joinsum::runtime::storage {

void ResidentBytes::add(const StoredRelation& relation) {
  for (const auto& [site, blocks] : relation.sites) {
    for (const Block& block : blocks) sites_[site].add(block.address(), block.bytes());
  }
}

void ResidentBytes::remove(const StoredRelation& relation) {
  for (const auto& [site, blocks] : relation.sites) {
    for (const Block& block : blocks) sites_.at(site).remove(block.address());
  }
}

int64_t ResidentBytes::of_busiest_site(const ReceivedBytes& received) const {
  int64_t most = 0;
  for (const auto& [site, bytes] : sites_) {
    const auto messages = received.find(site);
    most = std::max(most, bytes.total() + (messages != received.end() ? messages->second : 0));
  }
  return most;
}

}  // namespace joinsum::runtime::storage

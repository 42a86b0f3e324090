#pragma once

#include <map>

#include "runtime/storage/relation.h"

namespace joinsum::runtime::storage {

/// Bytes of the messages that each site of this process has received at once, at most.
using ReceivedBytes = std::map<int64_t, int64_t>;

/// Bytes of the blocks that each site of this process holds for one run.
class ResidentBytes {
 public:
  void add(const StoredRelation& relation);
  /// Removes a relation that was added.
  void remove(const StoredRelation& relation);
  /// With the messages that a move has received, of the site that has most.
  int64_t of_busiest_site(const ReceivedBytes& received) const;

 private:
  std::map<int64_t, BlockBytes> sites_;
};

}  // namespace joinsum::runtime::storage

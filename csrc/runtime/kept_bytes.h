#pragma once

#include <map>
#include <unordered_map>

#include "runtime/moves.h"
#include "runtime/relation.h"

namespace joinsum::runtime {

/// Bytes that each site of this process keeps for one run. Blocks that begin at one address are one array: a result
/// that was written over an operand, or a part that stayed where it was.
class KeptBytes {
 public:
  void add(const StoredRelation& relation, BlockStore& store);
  /// Takes back what `add` was given.
  void remove(const StoredRelation& relation, BlockStore& store);
  /// With the messages that a move has received, of the site that has most.
  int64_t of_busiest_site(const ReceivedBytes& received) const;

 private:
  struct Array {
    int64_t blocks = 0;
    int64_t bytes = 0;
  };
  struct Site {
    std::unordered_map<const void*, Array> arrays;
    int64_t bytes = 0;
  };
  std::map<int64_t, Site> sites_;
};

}  // namespace joinsum::runtime

#pragma once

#include "ia/exchange.h"
#include "runtime/relation.h"
#include "runtime/transport.h"

namespace joinsum::runtime {

/// Bytes of the messages that each site of this process has received at once, at most.
using ReceivedBytes = std::map<int64_t, int64_t>;

/// Takes a relation to the placement of `target` by the messages that ia/exchange lists. Sites of one process that end
/// up with the same parts share them. `who` names the operator in errors; `received` is filled.
StoredRelation move(const std::string& who, const StoredRelation& source, const ia::PhysicalType& target,
                    Transport& transport, BlockStore& store, ReceivedBytes& received);

/// Identity of arrays within one operator: same memory, sizes and strides, so same contents.
std::vector<int64_t> identity_of(const std::vector<Piece>& pieces);

/// A site's boxes with their arrays.
std::vector<Piece> pieces_at(const StoredRelation& relation, int64_t site, BlockStore& store);

}  // namespace joinsum::runtime

#pragma once

#include "runtime/communication/moves/moves.h"

namespace joinsum::runtime::communication::moves {

/// Moves a relation of sparse arrays; partials are reduced as `kernels::sparse::folded` says. Senders alone know how
/// many entries a message has: they tell that first, and then send indices and values. All processes make the same
/// calls in one order; it waits.
storage::StoredRelation move_sparse(const MoveOf& of, Transport& transport, storage::BlockStore& store);

}  // namespace joinsum::runtime::communication::moves

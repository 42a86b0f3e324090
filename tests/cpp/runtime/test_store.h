#pragma once

#include <cstdlib>
#include <memory>

#include "runtime/storage/block_store.h"

namespace joinsum::runtime::testing {

/// The store that JOINSUM_STORE names, `memory` by default: all tests of the runtime pass on each store.
inline std::shared_ptr<storage::BlockStore> make_test_store() {
  const char* const name = std::getenv("JOINSUM_STORE");
  return storage::make_store(name != nullptr ? name : "memory");
}

}  // namespace joinsum::runtime::testing

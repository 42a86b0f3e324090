#pragma once

#include <memory>

#include "base/arena.h"

namespace joinsum::runtime::storage {

/// While it lives, arrays that torch makes on the CPU in this thread take their memory from `arena`; null: from where
/// they take it otherwise. They free it in any thread, at any time.
class TorchAllocations {
 public:
  explicit TorchAllocations(std::shared_ptr<Arena> arena);
  ~TorchAllocations();
  TorchAllocations(const TorchAllocations&) = delete;
  TorchAllocations& operator=(const TorchAllocations&) = delete;

 private:
  std::shared_ptr<Arena> arena_;
  Arena* before_;
};

/// Arrays on the CPU for which torch has taken memory from the system in this thread, for tests.
int64_t system_allocations();

}  // namespace joinsum::runtime::storage

#include "base/reused_memory.h"

#include "base/arena.h"

namespace joinsum {
namespace {

/// Outlives all arrays, which may be freed when the program ends.
Arena& arena() {
  static auto& all = *new std::shared_ptr<Arena>(Arena::make(/*huge_pages=*/true));
  return *all;
}

}  // namespace

void* allocate_reused(size_t bytes) { return arena().allocate(bytes); }

void free_reused(void* memory) {
  arena().free(memory);
  arena().shrink_to(kReusedBytes);
}

}  // namespace joinsum

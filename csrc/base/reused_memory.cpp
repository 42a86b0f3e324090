#include "base/reused_memory.h"

#include <pthread.h>

#include "base/arena.h"

namespace joinsum {
namespace {

/// Outlives all arrays, which may be freed when the program ends. Processes that are forked while another thread takes
/// memory go on, as with the system's allocator.
Arena& arena() {
  static auto& all = *[] {
    auto* const made = new std::shared_ptr<Arena>(Arena::make(/*huge_pages=*/true));
    static const Arena* const forked = made->get();
    const auto unlock = [] { forked->unlock(); };
    pthread_atfork([] { forked->lock(); }, unlock, unlock);
    return made;
  }();
  return *all;
}

}  // namespace

void* allocate_reused(size_t bytes) { return arena().allocate(bytes); }

void free_reused(void* memory) {
  arena().free(memory);
  arena().shrink_to(kReusedBytes);
}

}  // namespace joinsum

#include "runtime/storage/torch_allocations.h"

#include <c10/core/CPUAllocator.h>

namespace joinsum::runtime::storage {
namespace {

thread_local Arena* current = nullptr;
thread_local int64_t from_system = 0;

/// torch's allocator for the CPU, which asks the thread's arena first.
class Allocator final : public c10::Allocator {
 public:
  explicit Allocator(c10::Allocator* system) : system_(system) {}

  c10::DataPtr allocate(size_t bytes) override {
    if (current != nullptr && bytes > 0) {
      if (void* const memory = current->allocate(bytes); memory != nullptr) {
        c10::profiledCPUMemoryReporter().New(memory, bytes);
        return {memory, memory, &give_back, c10::Device(c10::kCPU)};
      }
    }
    if (bytes > 0) ++from_system;
    return system_->allocate(bytes);
  }

  /// Takes memory of either origin.
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }

  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

 private:
  static void give_back(void* memory);

  c10::Allocator* system_;
};

/// Set while this library is loaded: torch reads which allocator there is in any thread, without a lock.
Allocator* const installed = [] {
  auto* const made = new Allocator(c10::GetAllocator(c10::kCPU));
  c10::SetAllocator(c10::kCPU, made);
  return made;
}();

void Allocator::give_back(void* memory) {
  if (memory == nullptr) return;
  if (const std::shared_ptr<Arena> arena = Arena::owner_of(memory); arena != nullptr) {
    c10::profiledCPUMemoryReporter().Delete(memory);
    arena->free(memory);
  } else {
    installed->system_->raw_deallocate(memory);
  }
}

}  // namespace

TorchAllocations::TorchAllocations(std::shared_ptr<Arena> arena) : arena_(std::move(arena)), before_(current) {
  current = arena_.get();
}

TorchAllocations::~TorchAllocations() { current = before_; }

int64_t system_allocations() { return from_system; }

}  // namespace joinsum::runtime::storage

#include "runtime/storage/torch_allocations.h"

#include <thread>

#include <ATen/ATen.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>

namespace joinsum::runtime::storage {
namespace {

constexpr int64_t kBytes = 1 << 20;

bool comes_from(const at::Tensor& array, const std::shared_ptr<Arena>& arena) {
  return Arena::owner_of(array.const_data_ptr()) == arena;
}

TEST(TorchAllocations, ComeFromTheArenaWhileItLives) {
  const auto arena = Arena::make();
  at::Tensor inside;
  {
    const TorchAllocations allocations(arena);
    const int64_t before = system_allocations();
    inside = at::ones({kBytes}, at::kByte) + 1;
    EXPECT_EQ(system_allocations(), before);
    {
      const TorchAllocations none(nullptr);
      EXPECT_FALSE(comes_from(at::empty({kBytes}, at::kByte), arena));
    }
    EXPECT_TRUE(comes_from(at::empty({kBytes}, at::kByte), arena));
  }
  EXPECT_FALSE(comes_from(at::empty({kBytes}, at::kByte), arena));
  ASSERT_TRUE(comes_from(inside, arena));
  EXPECT_EQ(arena->used_bytes(), kBytes);
  inside.reset();
  EXPECT_EQ(arena->used_bytes(), 0);
}

TEST(TorchAllocations, AreThoseOfOneThread) {
  const auto arena = Arena::make();
  const TorchAllocations allocations(arena);
  std::thread([&] { EXPECT_FALSE(comes_from(at::empty({kBytes}, at::kByte), arena)); }).join();
}

TEST(TorchAllocations, OutliveTheArenasOwner) {
  auto arena = Arena::make();
  at::Tensor array;
  {
    const TorchAllocations allocations(arena);
    array = at::ones({kBytes}, at::kByte);
  }
  arena.reset();
  EXPECT_EQ(array.sum().item<int64_t>(), kBytes);
  array.resize_({2 * kBytes}).fill_(1);
  EXPECT_EQ(array.sum().item<int64_t>(), 2 * kBytes);
}

TEST(TorchAllocations, RawMemoryOfEitherOriginIsFreed) {
  c10::Allocator& allocator = *c10::GetAllocator(c10::kCPU);
  const auto arena = Arena::make();
  void* outside = nullptr;
  void* inside = nullptr;
  {
    const TorchAllocations allocations(arena);
    inside = c10::GetAllocator(c10::kCPU)->raw_allocate(kBytes);
    const TorchAllocations none(nullptr);
    outside = allocator.raw_allocate(kBytes);
  }
  c10::Allocator& installed = *c10::GetAllocator(c10::kCPU);
  installed.raw_deallocate(inside);
  installed.raw_deallocate(outside);
  EXPECT_EQ(arena->used_bytes(), 0);
}

}  // namespace
}  // namespace joinsum::runtime::storage

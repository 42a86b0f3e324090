#include "base/arena.h"

#include <cstring>
#include <random>
#include <thread>

#include <gtest/gtest.h>

namespace joinsum {
namespace {

constexpr size_t kArenaBytes = 1 << 20;

TEST(Arena, UsesFreedMemoryAgain) {
  const auto arena = Arena::make();
  void* const memory = arena->allocate(kArenaBytes);
  EXPECT_EQ(arena->used_bytes(), kArenaBytes);
  arena->free(memory);
  EXPECT_EQ(arena->used_bytes(), 0);
  EXPECT_EQ(arena->cached_bytes(), kArenaBytes);
  EXPECT_EQ(arena->allocate(kArenaBytes), memory);
  EXPECT_EQ(arena->cached_bytes(), 0);
  arena->free(memory);
}

TEST(Arena, JoinsFreeNeighbours) {
  const auto arena = Arena::make();
  void* const first = arena->allocate(kArenaBytes);
  void* const second = arena->allocate(kArenaBytes);
  void* const third = arena->allocate(kArenaBytes);
  arena->free(first);
  arena->free(third);
  arena->free(second);
  EXPECT_EQ(arena->allocate(3 * kArenaBytes), first);
  EXPECT_EQ(arena->cached_bytes(), 0);
  arena->free(first);
}

TEST(Arena, TakesTheSmallestChunkThatFits) {
  const auto arena = Arena::make();
  void* const large = arena->allocate(4 * kArenaBytes);
  void* const between = arena->allocate(kArenaBytes);
  void* const small = arena->allocate(2 * kArenaBytes);
  void* const last = arena->allocate(kArenaBytes);
  arena->free(large);
  arena->free(small);
  EXPECT_EQ(arena->allocate(2 * kArenaBytes), small);
  EXPECT_EQ(arena->allocate(kArenaBytes), large);
  for (void* const memory : {small, large, between, last}) arena->free(memory);
}

TEST(Arena, GrowsByWhatItsLastChunkLacks) {
  const auto arena = Arena::make();
  void* const first = arena->allocate(kArenaBytes);
  arena->free(first);
  EXPECT_EQ(arena->allocate(4 * kArenaBytes), first);
  EXPECT_EQ(arena->used_bytes() + arena->cached_bytes(), 4 * kArenaBytes);
  arena->free(first);
}

TEST(Arena, CachesSmallMemoryBySize) {
  const auto arena = Arena::make();
  void* const first = arena->allocate(100);
  void* const second = arena->allocate(100);
  EXPECT_NE(first, second);
  arena->free(first);
  void* const other = arena->allocate(300);
  EXPECT_NE(other, first);
  EXPECT_EQ(arena->allocate(90), first) << "both are rounded up to 128";
  for (void* const memory : {first, second, other}) arena->free(memory);
  EXPECT_EQ(arena->used_bytes(), 0);
}

TEST(Arena, ReturnsPagesOfTheLargestChunksFirst) {
  const auto arena = Arena::make();
  void* const large = arena->allocate(4 * kArenaBytes);
  void* const between = arena->allocate(kArenaBytes);
  void* const small = arena->allocate(2 * kArenaBytes);
  void* const last = arena->allocate(kArenaBytes);
  std::memset(large, 1, 4 * kArenaBytes);
  std::memset(small, 1, 2 * kArenaBytes);
  arena->free(large);
  arena->free(small);
  arena->shrink_to(3 * kArenaBytes);
  EXPECT_LE(arena->cached_bytes(), 2 * kArenaBytes + 8192);
  EXPECT_EQ(*static_cast<char*>(arena->allocate(4 * kArenaBytes)), 0) << "a page from the system";
  EXPECT_EQ(*static_cast<char*>(arena->allocate(2 * kArenaBytes)), 1) << "a page that was cached";
  EXPECT_LE(arena->cached_bytes(), 8192);
  for (void* const memory : {large, between, small, last}) arena->free(memory);
  arena->shrink_to(0);
  EXPECT_LE(arena->cached_bytes(), 8192);
}

TEST(Arena, LivesAsLongAsItsMemory) {
  auto arena = Arena::make();
  void* const memory = arena->allocate(kArenaBytes);
  const std::weak_ptr<Arena> watched = arena;
  arena.reset();
  ASSERT_EQ(Arena::owner_of(memory), watched.lock());
  std::memset(memory, 1, kArenaBytes);
  Arena::owner_of(memory)->free(memory);
  EXPECT_TRUE(watched.expired());
  EXPECT_EQ(Arena::owner_of(memory), nullptr);
}

TEST(Arena, KnowsItsAddresses) {
  const auto first = Arena::make();
  const auto second = Arena::make();
  void* const a = first->allocate(kArenaBytes);
  void* const b = second->allocate(kArenaBytes);
  int outside = 0;
  EXPECT_EQ(Arena::owner_of(static_cast<char*>(a) + kArenaBytes - 1), first);
  EXPECT_EQ(Arena::owner_of(b), second);
  EXPECT_EQ(Arena::owner_of(&outside), nullptr);
  first->free(a);
  second->free(b);
}

TEST(Arena, GivesNoMemoryTwice) {
  const auto arena = Arena::make();
  std::mt19937 random(0);
  std::vector<std::pair<unsigned char*, size_t>> taken;
  for (int step = 0; step < 20'000; ++step) {
    if (taken.size() < 50 || (taken.size() < 200 && random() % 2 == 0)) {
      const size_t bytes = 1 + random() % (random() % 4 == 0 ? 200'000 : 30'000);
      auto* const memory = static_cast<unsigned char*>(arena->allocate(bytes));
      ASSERT_EQ(reinterpret_cast<uintptr_t>(memory) % Arena::kAlignment, 0);
      std::memset(memory, static_cast<int>(bytes % 251), bytes);
      taken.emplace_back(memory, bytes);
    } else {
      std::swap(taken[random() % taken.size()], taken.back());
      const auto [memory, bytes] = taken.back();
      const auto value = static_cast<unsigned char>(bytes % 251);
      ASSERT_EQ(std::count(memory, memory + bytes, value), static_cast<int64_t>(bytes));
      arena->free(memory);
      taken.pop_back();
    }
    if (step % 1'000 == 999) arena->shrink_to(static_cast<int64_t>(random() % 1'000'000));
  }
  for (const auto& [memory, bytes] : taken) arena->free(memory);
  EXPECT_EQ(arena->used_bytes(), 0);
}

TEST(Arena, ManyThreadsTakeAndFree) {
  const auto arena = Arena::make();
  const auto work = [&] {
    for (int step = 0; step < 2'000; ++step) {
      void* const memory = arena->allocate(1'000 + 977 * static_cast<size_t>(step % 40));
      *static_cast<int*>(memory) = step;
      arena->free(memory);
    }
  };
  std::thread first(work), second(work);
  first.join();
  second.join();
  EXPECT_EQ(arena->used_bytes(), 0);
}

}  // namespace
}  // namespace joinsum

#include "base/reused_memory.h"

#include <cstring>

#include <gtest/gtest.h>

namespace joinsum {
namespace {

TEST(ReusedMemory, WhatIsFreedIsTakenAgain) {
  constexpr size_t kBytes = size_t{1} << 22;
  void* const first = allocate_reused(kBytes);
  ASSERT_NE(first, nullptr);
  std::memset(first, 1, kBytes);
  free_reused(first);
  void* const second = allocate_reused(kBytes);
  EXPECT_EQ(second, first);
  void* const other = allocate_reused(kBytes);
  EXPECT_NE(other, second);
  free_reused(second);
  free_reused(other);
}

TEST(ReusedMemory, ThereIsNotMoreThanTheMachineHas) { EXPECT_EQ(allocate_reused(size_t{1} << 60), nullptr); }

}  // namespace
}  // namespace joinsum

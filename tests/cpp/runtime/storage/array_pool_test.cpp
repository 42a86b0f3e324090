#include "runtime/storage/array_pool.h"

#include <gtest/gtest.h>

namespace joinsum::runtime::storage {
namespace {

at::Tensor array_of(int64_t bytes) { return at::empty({bytes}, at::kByte); }

TEST(ArrayPool, GivesBackArraysOfTheSameBytesAndDtype) {
  ArrayPool pool;
  const at::Tensor array = array_of(64);
  const void* const memory = array.data_ptr();
  pool.add(array);
  EXPECT_EQ(pool.bytes(), 64);
  EXPECT_FALSE(pool.take(32, at::kByte).defined());
  EXPECT_FALSE(pool.take(64, at::kFloat).defined());
  EXPECT_EQ(pool.take(64, at::kByte).data_ptr(), memory);
  EXPECT_EQ(pool.bytes(), 0);
  EXPECT_FALSE(pool.take(64, at::kByte).defined());
}

TEST(ArrayPool, ShrinksByTheSizesThatWereUsedLeastRecently) {
  ArrayPool pool;
  for (const int64_t bytes : {10, 20, 30, 10, 20}) pool.add(array_of(bytes));
  EXPECT_TRUE(pool.take(10, at::kByte).defined());  // 30 is now the oldest size, then 20
  const auto removed = pool.shrink_to(35);
  ASSERT_EQ(removed.size(), 2U);
  EXPECT_EQ(removed[0].numel(), 30);
  EXPECT_EQ(removed[1].numel(), 20);
  EXPECT_EQ(pool.bytes(), 30);
  EXPECT_TRUE(pool.shrink_to(30).empty());
  EXPECT_EQ(pool.shrink_to(0).size(), 2U);
  EXPECT_EQ(pool.bytes(), 0);
}

TEST(ArrayPool, ForgetsSizesWithoutArraysBeforeOthers) {
  ArrayPool pool;
  pool.add(array_of(10));
  pool.add(array_of(20));
  EXPECT_TRUE(pool.take(10, at::kByte).defined());
  pool.add(array_of(30));
  const auto removed = pool.shrink_to(30);  // 20 is the oldest size that has an array
  ASSERT_EQ(removed.size(), 1U);
  EXPECT_EQ(removed[0].numel(), 20);
  EXPECT_FALSE(pool.take(10, at::kByte).defined());
  pool.add(array_of(10));
  EXPECT_TRUE(pool.take(10, at::kByte).defined());
  EXPECT_EQ(pool.bytes(), 30);
}

}  // namespace
}  // namespace joinsum::runtime::storage

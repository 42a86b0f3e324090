#include <gtest/gtest.h>

#include "runtime/storage/block_store.h"

namespace joinsum::runtime::storage {
namespace {

constexpr int64_t kBlockBytes = 1 << 20;

Block made(BlockStore& store, int64_t bytes) { return store.put(store.allocate({bytes}, at::kByte)); }

const void* address_of(const Block& block) { return Pin(block).array().data_ptr(); }

TEST(MemoryStore, UsesFreedMemoryAgainForBlocksOfItsSize) {
  const auto store = make_memory_store();
  const void* const memory = address_of(made(*store, kBlockBytes));
  EXPECT_EQ(store->bytes(), 0);
  EXPECT_EQ(store->pooled_bytes(), kBlockBytes);
  EXPECT_EQ(address_of(made(*store, kBlockBytes)), memory);
}

TEST(MemoryStore, FreedBlocksThatLieTogetherAreOne) {
  const auto store = make_memory_store();
  {
    const Block a = made(*store, kBlockBytes), b = made(*store, 2 * kBlockBytes);
  }
  EXPECT_EQ(store->pooled_bytes(), 3 * kBlockBytes);
  const Block c = made(*store, 3 * kBlockBytes);
  EXPECT_EQ(store->pooled_bytes(), 0);
}

TEST(MemoryStore, BlocksAndPoolStayWithinTheBudget) {
  const auto store = make_memory_store();
  made(*store, kBlockBytes);
  made(*store, 2 * kBlockBytes);
  store->set_budget(kBlockBytes);
  EXPECT_EQ(store->pooled_bytes(), 0);
  made(*store, 2 * kBlockBytes);
  EXPECT_EQ(store->pooled_bytes(), 0);
  made(*store, kBlockBytes);
  EXPECT_EQ(store->pooled_bytes(), kBlockBytes);
}

TEST(MemoryStore, ReturnsItsPoolOnRequest) {
  const auto store = make_memory_store();
  made(*store, kBlockBytes);
  store->release_pool();
  EXPECT_EQ(store->pooled_bytes(), 0);
}

TEST(MemoryStore, AnExportedArrayHoldsItsMemoryAsLongAsItLives) {
  const auto store = make_memory_store();
  const Block block = made(*store, kBlockBytes);
  {
    const at::Tensor array = block.export_array();
    EXPECT_FALSE(block.exclusive());
    EXPECT_EQ(array.data_ptr(), address_of(block));
    EXPECT_NE(array.unsafeGetTensorImpl(), Pin(block).array().unsafeGetTensorImpl());
  }
  EXPECT_TRUE(block.exclusive());
}

TEST(MemoryStore, PoolsNoMemoryThatOthersSee) {
  const auto store = make_memory_store();
  const at::Tensor outside = made(*store, kBlockBytes).export_array();
  EXPECT_EQ(store->pooled_bytes(), 0);
  store->share(at::empty({kBlockBytes}, at::kByte).narrow(0, 0, kBlockBytes / 2));
  EXPECT_EQ(store->pooled_bytes(), 0);
}

TEST(MemoryStore, UsesSmallArraysAgainInOtherShapes) {
  const auto store = make_memory_store();
  const Block larger = made(*store, kBlockBytes);
  const void* memory = nullptr;
  {
    const Block first = store->put(store->allocate({2, 6}, at::kFloat));
    memory = address_of(first);
  }
  const at::Tensor again = store->allocate({3, 1, 4}, at::kFloat);
  EXPECT_EQ(again.data_ptr(), memory);
  EXPECT_EQ(again.sizes(), (at::IntArrayRef{3, 1, 4}));
  EXPECT_TRUE(again.is_contiguous());
  EXPECT_NE(store->allocate({12}, at::kInt).data_ptr(), memory) << "another dtype";
}

TEST(MemoryStore, PoolsNoArrayThatNegatesItsMemory) {
  const auto store = make_memory_store();
  store->put(at::_neg_view(at::ones({8})));
  EXPECT_EQ(store->pooled_bytes(), 0);
}

}  // namespace
}  // namespace joinsum::runtime::storage

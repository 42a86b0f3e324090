#include "runtime/storage/block.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "runtime/test_store.h"

namespace joinsum::runtime::storage {
namespace {

at::Tensor elements(const Block& block) { return Pin(block).array().clone(); }

class BlockTest : public ::testing::Test {
 protected:
  Block counted(at::IntArrayRef shape) {
    return store_->put(at::arange(c10::multiply_integers(shape), at::kDouble).reshape(shape).clone());
  }
  std::shared_ptr<BlockStore> store_ = testing::make_test_store();
};

TEST_F(BlockTest, HasShapeElementsAndBytes) {
  const Block block = counted({3, 4});
  EXPECT_EQ(block.format(), Format::kDense);
  EXPECT_EQ(block.shape(), at::IntArrayRef({3, 4}));
  EXPECT_EQ(block.elements(), 12);
  EXPECT_EQ(block.bytes(), 96);
  EXPECT_EQ(block.options().dtype(), at::kDouble);
  EXPECT_TRUE(block.options().device().is_cpu());
}

TEST_F(BlockTest, SlicesAreViewsOfOneMemory) {
  const Block block = counted({3, 4});
  const Block slice = block.narrow(1, 1, 2);
  EXPECT_TRUE(at::equal(elements(slice), at::arange(12, at::kDouble).reshape({3, 4}).narrow(1, 1, 2)));
  EXPECT_EQ(slice.memory(), block.memory());
  EXPECT_NE(slice.address(), block.address());
  EXPECT_EQ(block.narrow(1, 0, 4).address(), block.address());
  EXPECT_FALSE(slice.viewed_as({6}).has_value());
  EXPECT_TRUE(block.viewed_as({6, 2}).has_value());
}

TEST_F(BlockTest, IdentityIsOfMemoryShapeAndStrides) {
  const Block block = counted({4, 4});
  const auto identity = [](const Block& of) {
    std::vector<int64_t> out;
    of.append_identity(out);
    return out;
  };
  const Block copy = block;
  EXPECT_EQ(identity(block), identity(copy));
  EXPECT_EQ(identity(block.narrow(0, 1, 2)), identity(block.narrow(0, 1, 2)));
  EXPECT_NE(identity(block), identity(counted({4, 4})));
  EXPECT_NE(identity(block), identity(*block.viewed_as({16})));
  EXPECT_NE(identity(block.narrow(0, 1, 2)), identity(block.narrow(0, 2, 2)));
}

TEST_F(BlockTest, IsExclusiveUntilAnotherBufferOrArrayRefersToItsMemory) {
  const Block block = counted({8});
  EXPECT_TRUE(block.exclusive());
  EXPECT_FALSE(block.narrow(0, 1, 2).exclusive());
  {
    const Pin pin(block);
    const Block other = store_->put(pin.array());
    EXPECT_EQ(other.memory(), block.memory());
    EXPECT_FALSE(other.shares_buffer(block));
    EXPECT_FALSE(other.exclusive());
  }
  EXPECT_TRUE(block.exclusive());
  at::Tensor outside = block.export_array();
  EXPECT_FALSE(block.exclusive());
  outside.reset();
  EXPECT_TRUE(block.exclusive());
  const at::Tensor callers = at::zeros({8});
  EXPECT_FALSE(store_->share(callers).exclusive());
}

TEST_F(BlockTest, SharedAndExportedArraysSeeEachOthersWrites) {
  const at::Tensor callers = at::zeros({4}, at::kDouble);
  const Block block = store_->share(callers);
  callers.fill_(2);
  EXPECT_TRUE(at::equal(elements(block), callers));
  const at::Tensor outside = block.export_array();
  elements(block);
  outside.fill_(3);
  EXPECT_TRUE(at::equal(elements(block), at::full({4}, 3, at::kDouble)));
  EXPECT_TRUE(at::equal(callers, outside));
}

TEST_F(BlockTest, PacksRangesOfBlocksAndUnpacksThem) {
  const Block a = counted({2, 3}), b = counted({2, 3});
  EXPECT_TRUE(pack({a}, 0, 6, *store_).shares_buffer(a));
  EXPECT_TRUE(at::equal(elements(pack({a}, 2, 5, *store_)), at::tensor({2., 3., 4.}, at::kDouble)));
  EXPECT_TRUE(at::equal(elements(pack({a, b}, 4, 8, *store_)), at::tensor({4., 5., 0., 1.}, at::kDouble)));
  const Block column = a.narrow(1, 1, 1);
  EXPECT_TRUE(at::equal(elements(pack({column}, 1, 2, *store_)), at::tensor({4.}, at::kDouble)));
  const auto unpacked = unpack(pack({a, b}, 0, 12, *store_), {3, 2}, *store_);
  ASSERT_EQ(unpacked.size(), 2U);
  for (const Block& each : unpacked) {
    EXPECT_TRUE(at::equal(elements(each), at::arange(6, at::kDouble).reshape({3, 2})));
  }
  EXPECT_THROW(unpack(a, {4}, *store_), Error);
}

TEST_F(BlockTest, ConcatenatesAndCopies) {
  const Block a = counted({2}), b = counted({4});
  const Block joined = concatenate({a, b}, {3, 2}, *store_);
  EXPECT_TRUE(at::equal(elements(joined), at::tensor({0., 1., 0., 1., 2., 3.}, at::kDouble).reshape({3, 2})));
  EXPECT_TRUE(concatenate({b}, {2, 2}, *store_).shares_buffer(b));
  copy(a, joined.narrow(0, 2, 1).viewed_as({2}).value());
  EXPECT_TRUE(at::equal(elements(joined), at::tensor({0., 1., 0., 1., 0., 1.}, at::kDouble).reshape({3, 2})));
}

TEST_F(BlockTest, BlocksOfTheCallersArraysAreCountedByNoStore) {
  const Block block = block_of(at::ones({4}));
  EXPECT_EQ(store_->bytes(), 0);
  EXPECT_EQ(block.bytes(), 16);
  EXPECT_TRUE(at::equal(elements(block), at::ones({4})));
}

}  // namespace
}  // namespace joinsum::runtime::storage

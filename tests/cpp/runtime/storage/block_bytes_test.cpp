#include "runtime/storage/block_bytes.h"

#include <gtest/gtest.h>

#include "base/check.h"

namespace joinsum::runtime::storage {
namespace {

TEST(BlockBytes, CountsBlocksOfOneAddressOnce) {
  const int memory = 0;
  BlockBytes bytes;
  bytes.add({&memory, 0}, 8);
  bytes.add({&memory, 0}, 12);
  bytes.add({&memory, 16}, 4);
  EXPECT_EQ(bytes.total(), 16);
  bytes.remove({&memory, 0});
  EXPECT_EQ(bytes.total(), 16);
  bytes.remove({&memory, 0});
  EXPECT_EQ(bytes.total(), 4);
}

TEST(BlockBytes, RefusesToRemoveWhatWasNotAdded) {
  BlockBytes bytes;
  EXPECT_THROW(bytes.remove({nullptr, 0}), InternalError);
}

}  // namespace
}  // namespace joinsum::runtime::storage

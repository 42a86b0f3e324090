#include "runtime/storage/block_store.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "runtime/test_store.h"

namespace joinsum::runtime::storage {
namespace {

TEST(BlockStore, IsMadeByNameAndNamesTheChoices) {
  for (const std::string& name : store_names()) EXPECT_EQ(make_store(name)->name(), name);
  try {
    make_store("disk");
    FAIL();
  } catch (const PlanError& error) {
    EXPECT_STREQ(error.what(), "init: no store of that name: store=disk, choices=memory, relocating");
  }
}

TEST(BlockStore, CountsBlocksOfOneArrayOnce) {
  const auto store = testing::make_test_store();
  const at::Tensor array = at::ones({100}, at::kDouble);
  const Block a = store->share(array), b = store->share(array);
  EXPECT_EQ(store->bytes(), 800);
}

TEST(BlockStore, CountsBytesAndTheirPeak) {
  const auto store = testing::make_test_store();
  Block a = store->put(at::ones({100}, at::kDouble));
  {
    const Block b = store->put(at::ones({50}, at::kDouble));
    EXPECT_EQ(store->bytes(), 1200);
  }
  EXPECT_EQ(store->bytes(), 800);
  EXPECT_EQ(store->peak_bytes(), 1200);
  store->reset_peak();
  EXPECT_EQ(store->peak_bytes(), 800);
  a = Block();
  EXPECT_EQ(store->bytes(), 0);
}

}  // namespace
}  // namespace joinsum::runtime::storage

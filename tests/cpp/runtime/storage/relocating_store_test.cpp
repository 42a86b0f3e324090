#include <gtest/gtest.h>

#include "runtime/storage/block_store.h"

namespace joinsum::runtime::storage {
namespace {

TEST(RelocatingStore, PoisonsWhatOutlivesItsPin) {
  const auto store = make_relocating_store();
  const Block block = store->put(at::ones({4}, at::kDouble));
  const at::Tensor leaked = Pin(block).array();
  EXPECT_TRUE(leaked.isnan().all().item<bool>());
  EXPECT_TRUE(at::equal(Pin(block).array().clone(), at::ones({4}, at::kDouble)));
}

TEST(RelocatingStore, LeavesPinnedBlocksWhereTheyAre) {
  const auto store = make_relocating_store();
  const Block block = store->put(at::ones({4}, at::kDouble));
  const Pin pin(block);
  const void* const address = pin.array().data_ptr();
  {
    const Pin second(block.narrow(0, 1, 2));
  }
  EXPECT_EQ(Pin(block).array().data_ptr(), address);
  EXPECT_TRUE(at::equal(pin.array(), at::ones({4}, at::kDouble)));
}

TEST(RelocatingStore, MovesBlocksOfOneMemoryTogether) {
  const auto store = make_relocating_store();
  const Block block = store->put(at::arange(6, at::kDouble));
  const Block part = [&] {
    const Pin pin(block);
    return store->put(pin.array().narrow(0, 2, 3));
  }();
  {
    const Pin pin(part);
  }
  EXPECT_EQ(part.memory(), block.memory());
  at::Tensor(Pin(part).array()).fill_(9);
  EXPECT_TRUE(at::equal(Pin(block).array().clone(), at::tensor({0., 1., 9., 9., 9., 5.}, at::kDouble)));
}

TEST(RelocatingStore, LeavesArraysOfUsersAlone) {
  const auto store = make_relocating_store();
  const at::Tensor users = at::ones({4});
  const Block shared = store->share(users);
  {
    const Pin pin(shared);
  }
  EXPECT_EQ(Pin(shared).array().data_ptr(), users.data_ptr());
  const Block own = store->put(at::ones({4}));
  const at::Tensor exported = own.export_array();
  {
    const Pin pin(own);
  }
  EXPECT_TRUE(at::equal(exported, at::ones({4})));
}

}  // namespace
}  // namespace joinsum::runtime::storage

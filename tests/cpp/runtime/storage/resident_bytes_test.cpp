#include "runtime/storage/resident_bytes.h"

#include <gtest/gtest.h>

#include "runtime/physical_types.h"
#include "runtime/test_store.h"

namespace joinsum::runtime::storage {
namespace {

TEST(ResidentBytes, CountsTheSiteThatHoldsMostWithItsMessages) {
  const auto store = testing::make_test_store();
  const auto type = testing::physical_type("f64[5]<2>", "(0)", 2);
  const auto relation = place_tensor(at::ones({5}, at::kDouble), type, {0, 1}, *store, Ownership::kCopied);
  ResidentBytes bytes;
  bytes.add(relation);
  EXPECT_EQ(bytes.of_busiest_site({}), 24);
  EXPECT_EQ(bytes.of_busiest_site({{0, 100}, {1, 4}}), type.bytes(0) + 100);
  bytes.remove(relation);
  EXPECT_EQ(bytes.of_busiest_site({}), 0);
}

TEST(ResidentBytes, CountsBlocksOfOneAddressOnce) {
  const auto store = testing::make_test_store();
  const auto type = testing::physical_type("f64[4]<1>", "(*)", 2);
  const auto relation = place_tensor(at::ones({4}, at::kDouble), type, {0, 1}, *store, Ownership::kCopied);
  const auto same = with_own_blocks(relation, *store);
  ResidentBytes bytes;
  bytes.add(relation);
  bytes.add(same);
  EXPECT_EQ(bytes.of_busiest_site({}), 32);
  bytes.remove(relation);
  EXPECT_EQ(bytes.of_busiest_site({}), 32);
  bytes.remove(same);
  EXPECT_EQ(bytes.of_busiest_site({}), 0);
}

}  // namespace
}  // namespace joinsum::runtime::storage

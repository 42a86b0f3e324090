#include "runtime/communication/native_collectives.h"

#include <gtest/gtest.h>

namespace joinsum::runtime::communication {
namespace {

const CollectiveCall kGather{Collective::kAllGather, "gather", {0, 1, 2}, "", 0};
const CollectiveCall kSum{Collective::kAllReduce, "sum", {0, 1, 2}, "add", 0};

TEST(NativeCollectives, TheTableUsesNcclsAndNotGloos) {
  EXPECT_TRUE(uses_native(Collectives::kTable, "nccl", kSum, at::kFloat));
  EXPECT_FALSE(uses_native(Collectives::kTable, "gloo", kSum, at::kFloat));
  EXPECT_FALSE(uses_native(Collectives::kTable, "unknown", kGather, at::kFloat));
  EXPECT_TRUE(uses_native(Collectives::kAlways, "gloo", kGather, at::kFloat));
  EXPECT_FALSE(uses_native(Collectives::kAlways, "unknown", kGather, at::kFloat));
  EXPECT_FALSE(uses_native(Collectives::kNever, "nccl", kGather, at::kFloat));
}

TEST(NativeCollectives, AReduceScatterWhoseEndCannotBeSeenIsMessages) {
  const CollectiveCall call{Collective::kReduceScatter, "sum", {0, 1}, "add", 0};
  EXPECT_FALSE(uses_native(Collectives::kAlways, "gloo", call, at::kFloat));
  EXPECT_TRUE(uses_native(Collectives::kTable, "nccl", call, at::kFloat));
}

TEST(NativeCollectives, ReductionsThatTheBackendLacksAreMessages) {
  CollectiveCall call = kSum;
  EXPECT_FALSE(uses_native(Collectives::kAlways, "nccl", call, at::kBool));
  call.reduction = "max";
  EXPECT_TRUE(uses_native(Collectives::kAlways, "nccl", call, at::kLong));
  EXPECT_FALSE(uses_native(Collectives::kAlways, "nccl", call, at::kFloat));
  call.reduction = "logaddexp";
  EXPECT_FALSE(uses_native(Collectives::kAlways, "nccl", call, at::kFloat));
}

TEST(NativeCollectives, CountTheBytesOfMessages) {
  const at::Tensor x = at::zeros({3, 4}, at::kFloat);
  EXPECT_EQ(message_bytes(kGather, x, 1).sent, 2 * 48);
  EXPECT_EQ(message_bytes(kSum, x, 1).sent, (8 + 2 * 4) * 4);
  const CollectiveCall scatter{Collective::kReduceScatter, "sum", {0, 1, 2}, "add", 0};
  EXPECT_EQ(message_bytes(scatter, x, 1).received, 2 * 16);
  const CollectiveCall copy{Collective::kBroadcast, "copy", {0, 1, 2}, "", 2};
  EXPECT_EQ(message_bytes(copy, x, 2).sent, 2 * 48);
  EXPECT_EQ(message_bytes(copy, x, 0).received, 48);
  EXPECT_EQ(message_bytes(copy, x, 0).sent, 0);
}

}  // namespace
}  // namespace joinsum::runtime::communication

#include "runtime/communication/coalescing.h"

#include <gtest/gtest.h>

namespace joinsum::runtime::communication {
namespace {

std::vector<std::vector<size_t>> positions(const std::vector<CoalescedMessage>& list) {
  std::vector<std::vector<size_t>> out;
  for (const CoalescedMessage& each : list) out.push_back(each.messages);
  return out;
}

TEST(Coalescing, SmallMessagesOfAPairGoTogetherAndLargeOnesAlone) {
  const std::vector<Message> messages{{0, 1, 40}, {0, 2, 40}, {0, 1, 400'000}, {0, 1, 80}, {1, 0, 20}, {0, 1, 0}};
  EXPECT_EQ(positions(coalesce(messages, 0, true)), (std::vector<std::vector<size_t>>{{0, 3}, {1}, {2}}));
  EXPECT_EQ(positions(coalesce(messages, 1, false)), (std::vector<std::vector<size_t>>{{0, 3}, {2}}));
  EXPECT_EQ(positions(coalesce(messages, 0, false)), (std::vector<std::vector<size_t>>{{4}}));
}

TEST(Coalescing, OneBufferHasAtMostFourMebibytes) {
  const std::vector<Message> messages(200, {0, 1, 60 << 10});
  int64_t messages_in_all = 0;
  for (const CoalescedMessage& each : coalesce(messages, 0, true)) {
    EXPECT_LE(each.bytes, 4 << 20);
    messages_in_all += static_cast<int64_t>(each.messages.size());
  }
  EXPECT_EQ(messages_in_all, 200);
}

TEST(Coalescing, UnpackingGivesWhatWasPacked) {
  const std::vector<Message> messages{{0, 1, 8}, {0, 1, 12}};
  const at::Tensor all = at::arange(5, at::kInt);
  auto sent = coalesce(messages, 0, true);
  ASSERT_EQ(sent.size(), 1U);
  sent[0].buffer = pack(sent[0], messages, all.options(),
                        [&](size_t i) { return i == 0 ? all.narrow(0, 0, 2) : all.narrow(0, 2, 3); });
  EXPECT_EQ(bytes_of(sent), 20);
  EXPECT_EQ(buffers_of(sent)[0].peer, 1);
  const std::vector<at::Tensor> arrays{at::empty({2}, at::kInt), at::empty({3}, at::kInt)};
  unpack(sent[0], arrays);
  EXPECT_TRUE(at::equal(arrays[0], all.narrow(0, 0, 2)));
  EXPECT_TRUE(at::equal(arrays[1], all.narrow(0, 2, 3)));
}

TEST(Coalescing, AnArrayThatIsContiguousAndAloneIsNotCopied) {
  const std::vector<Message> messages{{0, 1, 16}};
  const at::Tensor x = at::ones({2, 2});
  const auto sent = coalesce(messages, 0, true);
  EXPECT_TRUE(pack(sent[0], messages, x.options(), [&](size_t) { return x; }).is_alias_of(x));
}

}  // namespace
}  // namespace joinsum::runtime::communication

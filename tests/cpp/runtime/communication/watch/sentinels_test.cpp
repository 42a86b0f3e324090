#include "runtime/communication/watch/sentinels.h"

#include <gtest/gtest.h>

#include "runtime/communication/memory_group.h"

namespace joinsum::runtime::communication::watch {
namespace {

TEST(Sentinels, FindAConnectionThatHasClosed) {
  testing::MemoryNetwork network(2, "gloo");
  const auto backend = network.group(1)->getBackend(at::kCPU);
  std::vector<at::Tensor> unused{at::empty({1}, at::kByte)};
  Sentinels sentinels;
  EXPECT_FALSE(sentinels.contains(0));
  EXPECT_EQ(sentinels.close_reason(0), "");
  sentinels.add(0, backend->recv(unused, 0, 7));
  EXPECT_TRUE(sentinels.contains(0));
  EXPECT_EQ(sentinels.close_reason(0), "");
  network.disconnect(0);
  EXPECT_EQ(sentinels.close_reason(0), "connection closed");
}

TEST(ReasonOf, IsOneLineAndOneWordingForClosedConnections) {
  EXPECT_EQ(reason_of(std::runtime_error("[pair.cc:1] Connection closed by peer [::1]:5\nat ...")),
            "connection closed");
  EXPECT_EQ(reason_of(std::runtime_error("Socket closed")), "connection closed");
  EXPECT_EQ(reason_of(std::runtime_error("out of memory\nat line 3")), "out of memory");
}

}  // namespace
}  // namespace joinsum::runtime::communication::watch

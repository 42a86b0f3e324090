#include "runtime/communication/watch/peer_watch.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "runtime/communication/memory_group.h"

namespace joinsum::runtime::communication::watch {
namespace {

using namespace std::chrono_literals;

/// The peers as both ranks of a group see them. Waits for a "gloo" can be woken, those of other backends are polled.
class Peers : public ::testing::TestWithParam<std::string> {
 protected:
  testing::MemoryNetwork network_{2, GetParam()};
  PeerWatch first_{network_.group(0), 20s};
  PeerWatch second_{network_.group(1), 20s};

  static std::vector<PeerTransfer> post(PeerWatch& peers, const std::vector<PeerBuffer>& receives,
                                        const std::vector<PeerBuffer>& sends) {
    return peers.post("move", peers.backend("move", at::kCPU), Channel::kArrays, receives, sends);
  }
  static std::string wait_error(PeerWatch& peers, std::vector<PeerTransfer>& transfers) {
    try {
      const auto turn = peers.enter();
      peers.wait("move", transfers);
    } catch (const std::exception& error) {
      return error.what();
    }
    return "";
  }
};

INSTANTIATE_TEST_SUITE_P(Backends, Peers, ::testing::Values("gloo", "another"),
                         [](const auto& entry) { return entry.param; });

TEST_P(Peers, DeliverInTheOrderOfPosting) {
  const at::Tensor a = at::zeros({2});
  const at::Tensor b = at::zeros({2});
  auto receives = post(second_, {{0, a}, {0, b}}, {});
  auto sends = post(first_, {}, {{1, at::full({2}, 3.0)}, {1, at::full({2}, 4.0)}});
  EXPECT_EQ(wait_error(first_, sends), "");
  EXPECT_EQ(wait_error(second_, receives), "");
  EXPECT_TRUE((a == 3.0).all().item<bool>());
  EXPECT_TRUE((b == 4.0).all().item<bool>());
}

TEST_P(Peers, ArraysAndControlDataAreMatchedApart) {
  const at::Tensor array = at::zeros({1});
  const at::Tensor header = at::zeros({1});
  auto receives = post(second_, {{0, array}}, {});
  auto controls = second_.post("agree", second_.control_backend(), Channel::kControl, {{0, header}}, {});
  auto control_sends = first_.post("agree", first_.control_backend(), Channel::kControl, {}, {{1, at::full({1}, 5.0)}});
  EXPECT_EQ(wait_error(second_, controls), "");
  EXPECT_EQ(header.item<double>(), 5.0);
  EXPECT_FALSE(receives[0].work->isCompleted());
  auto sends = post(first_, {}, {{1, at::full({1}, 6.0)}});
  EXPECT_EQ(wait_error(second_, receives), "");
  EXPECT_EQ(array.item<double>(), 6.0);
}

TEST_P(Peers, AClosedConnectionFailsTheWaitAndEveryLaterCall) {
  auto receives = post(second_, {{0, at::zeros({1})}}, {});
  network_.disconnect(0);
  EXPECT_EQ(wait_error(second_, receives), "move: lost site 0: connection closed");
  EXPECT_THROW(second_.enter(), TransportError);
}

TEST_P(Peers, ATransferThatFinishedBeforeItsPeerEndedIsDelivered) {
  const at::Tensor array = at::zeros({1});
  auto receives = post(second_, {{0, array}}, {});
  post(first_, {}, {{1, at::ones({1})}});
  network_.disconnect(0);
  EXPECT_EQ(wait_error(second_, receives), "");
  EXPECT_EQ(array.item<double>(), 1.0);
}

TEST_P(Peers, TheReasonOfOnePeerReachesTheOthers) {
  EXPECT_THROW(first_.fail("move", 7, "power failure"), TransportError);
  auto receives = post(second_, {{0, at::zeros({1})}}, {});
  EXPECT_EQ(wait_error(second_, receives), "move: lost site 7: power failure");
}

TEST_P(Peers, AWaitThatTheUserInterruptsFailsTheGroup) {
  auto receives = post(second_, {{0, at::zeros({1})}}, {});
  set_wait_check([] { throw std::runtime_error("Ctrl-C"); });
  EXPECT_EQ(wait_error(second_, receives), "Ctrl-C");
  set_wait_check(nullptr);
  try {
    second_.enter();
    FAIL();
  } catch (const TransportError& error) {
    EXPECT_STREQ(error.what(), "move: lost site 1: interrupted");
  }
}

TEST_P(Peers, ClosingEndsAWaitInAnotherThread) {
  auto receives = post(second_, {{0, at::zeros({1})}}, {});
  std::string error;
  std::thread waiting([&] { error = wait_error(second_, receives); });
  second_.close();
  waiting.join();
  EXPECT_TRUE(error == "move: the transport is closed" || error == "transport: closed; call joinsum.init again")
      << error;
}

}  // namespace
}  // namespace joinsum::runtime::communication::watch

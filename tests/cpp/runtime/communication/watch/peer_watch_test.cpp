#include "runtime/communication/watch/peer_watch.h"

#include <thread>
#include <unistd.h>

#include <gtest/gtest.h>
#include <sys/socket.h>

#include "base/check.h"
#include "runtime/communication/memory_group.h"
#include "runtime/communication/sockets/socket_links.h"

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

// --- links
// ------------------------------------------------------------------------------------------------------------

using sockets::Descriptor;
using sockets::SocketLinks;
using sockets::Sockets;

/// Two ranks, of which the second one has a socket to the first; this holds the first one's end.
struct Linked {
  testing::MemoryNetwork network{2, "gloo"};
  PeerWatch second{network.group(1), 20s};
  Descriptor end;

  Linked() {
    Sockets sockets;
    for (int channel = 0; channel < 2; ++channel) {
      int ends[2];
      EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
      sockets[0].emplace_back(ends[0]);
      Descriptor other(ends[1]);
      if (channel == 0) end = std::move(other);
    }
    second.add_links(std::make_unique<SocketLinks>(std::move(sockets)));
  }

  std::vector<PeerTransfer> receive(const at::Tensor& into) {
    return second.post("move", second.backend("move", at::kCPU), Channel::kArrays, {{0, into}}, {});
  }
  std::string wait(std::vector<PeerTransfer>& transfers) {
    try {
      const auto turn = second.enter();
      second.wait("move", transfers);
    } catch (const std::exception& error) {
      return error.what();
    }
    return "";
  }
};

TEST(LinkedPeers, WhatIsOnItsWayArrivesAfterThePeersOtherConnectionHasClosed) {
  Linked linked;
  const at::Tensor array = at::zeros({1}, at::kDouble);
  auto transfers = linked.receive(array);
  linked.network.disconnect(0);
  std::thread network([&] {
    std::this_thread::sleep_for(400ms);
    const int64_t size = sizeof(double);
    const double value = 3;
    EXPECT_EQ(write(linked.end.number(), &size, sizeof(size)), 8);
    EXPECT_EQ(write(linked.end.number(), &value, sizeof(value)), 8);
    linked.end = Descriptor();
  });
  EXPECT_EQ(linked.wait(transfers), "");
  network.join();
  EXPECT_EQ(array.item<double>(), 3);
}

TEST(LinkedPeers, APeerThatEndsIsNamedByItsSocket) {
  Linked linked;
  auto transfers = linked.receive(at::zeros({1}));
  linked.end = Descriptor();
  EXPECT_EQ(linked.wait(transfers), "move: lost site 0: connection closed");
  EXPECT_THROW(linked.second.enter(), TransportError);
}

TEST(LinkedPeers, ProgressLeavesItsErrorsToTheNextWait) {
  Linked linked;
  auto transfers = linked.receive(at::zeros({1}));
  linked.end = Descriptor();
  linked.second.progress();
  linked.second.progress();
  EXPECT_EQ(linked.wait(transfers), "move: lost site 0: connection closed");
}

}  // namespace
}  // namespace joinsum::runtime::communication::watch

#include "runtime/communication/sockets/socket_links.h"

#include <random>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <sys/socket.h>

namespace joinsum::runtime::communication::sockets {
namespace {

using namespace std::chrono_literals;

/// Links of two ranks, of two channels each.
std::pair<std::unique_ptr<SocketLinks>, std::unique_ptr<SocketLinks>> two_ranks() {
  Sockets first;
  Sockets second;
  for (int channel = 0; channel < 2; ++channel) {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    first[1].emplace_back(ends[0]);
    second[0].emplace_back(ends[1]);
  }
  return {std::make_unique<SocketLinks>(std::move(first)), std::make_unique<SocketLinks>(std::move(second))};
}

Transfer message(std::string text) {
  const auto owner = std::make_shared<std::string>(std::move(text));
  return {owner->data(), static_cast<int64_t>(owner->size()), owner};
}

Transfer room(int64_t size) { return message(std::string(size, 0)); }

std::string text_of(const std::shared_ptr<Transfer>& transfer) {
  return {transfer->bytes, static_cast<size_t>(transfer->size)};
}

std::string text_of_size(int64_t size, unsigned seed) {
  std::mt19937 random(seed);
  std::string text(size, 0);
  for (char& each : text) each = static_cast<char>(random());
  return text;
}

void wait(Links& links, const std::shared_ptr<Transfer>& transfer) {
  while (!transfer->done) {
    if (!links.advance()) links.wait_for_change(100ms);
  }
}

std::string error_of(Links& links) {
  try {
    while (links.outstanding()) links.advance();
  } catch (const LinkError& error) {
    return std::to_string(error.peer) + ": " + error.what();
  }
  return "";
}

TEST(SocketLinks, ReachThosePeersThatTheyHaveSocketsOf) {
  const auto [first, second] = two_ranks();
  EXPECT_TRUE(first->reaches(1));
  EXPECT_FALSE(first->reaches(0));
  EXPECT_FALSE(first->outstanding());
}

TEST(SocketLinks, SmallMessagesAreGoneBeforeAnyoneWaitsAndArriveInOrder) {
  const auto [first, second] = two_ranks();
  std::vector<std::shared_ptr<Transfer>> sends;
  for (const char* text : {"one", "", "three"}) sends.push_back(first->send(1, 0, message(text)));
  EXPECT_TRUE(first->outstanding());
  first->advance_far();
  EXPECT_FALSE(first->outstanding());
  for (const auto& send : sends) EXPECT_TRUE(send->done);
  const auto one = second->receive(0, 0, room(3));
  const auto none = second->receive(0, 0, room(0));
  second->advance_far();
  EXPECT_TRUE(one->done && none->done);
  const auto three = second->receive(0, 0, room(5));
  second->advance_far();
  EXPECT_EQ(text_of(one), "one");
  EXPECT_EQ(text_of(three), "three");
}

TEST(SocketLinks, ChannelsAreApart) {
  const auto [first, second] = two_ranks();
  first->send(1, 0, message("array"));
  first->send(1, 1, message("control"));
  first->advance_far();
  const auto control = second->receive(0, 1, room(7));
  second->advance_far();
  EXPECT_EQ(text_of(control), "control");
  const auto array = second->receive(0, 0, room(5));
  second->advance_far();
  EXPECT_EQ(text_of(array), "array");
}

TEST(SocketLinks, AMessageLargerThanTheBuffersStopsWhenTheyAreFullAndGoesOn) {
  const auto [first, second] = two_ranks();
  const std::string text = text_of_size(20'000'003, 1);
  const auto sent = first->send(1, 0, message(text));
  first->advance_far();
  EXPECT_FALSE(sent->done);
  EXPECT_FALSE(first->advance());
  const auto received = second->receive(0, 0, room(static_cast<int64_t>(text.size())));
  while (!received->done) {
    second->advance_far();
    first->advance_far();
  }
  EXPECT_TRUE(sent->done);
  EXPECT_EQ(text_of(received), text);
}

TEST(SocketLinks, WaitsEndWhenSomethingArrivesOrTheTimeIsOver) {
  const auto [first, second] = two_ranks();
  const auto received = second->receive(0, 0, room(4));
  second->wait_for_change(1ms);
  EXPECT_FALSE(second->advance());
  std::thread sender([&, &first = first] {
    first->send(1, 0, message("text"));
    first->advance_far();
  });
  wait(*second, received);
  sender.join();
  EXPECT_EQ(text_of(received), "text");
}

TEST(SocketLinks, AMessageOfAnotherSizeIsNamed) {
  const auto [first, second] = two_ranks();
  first->send(1, 0, message("four"));
  first->advance();
  second->receive(0, 0, room(5));
  EXPECT_EQ(error_of(*second), "0: it sent another message: bytes=4, expected=5");
}

TEST(SocketLinks, AClosedConnectionIsNamedByThoseWhoWaitForIt) {
  auto [first, second] = two_ranks();
  first->send(1, 0, message("last"));
  first->advance_far();
  first.reset();
  const auto last = second->receive(0, 0, room(4));
  EXPECT_EQ(error_of(*second), "");
  EXPECT_EQ(text_of(last), "last");
  second->receive(0, 0, room(4));
  EXPECT_EQ(error_of(*second), "0: connection closed");
}

TEST(SocketLinks, ASenderLearnsOfAClosedConnection) {
  auto [first, second] = two_ranks();
  second.reset();
  first->send(1, 0, message("text"));
  EXPECT_EQ(error_of(*first), "1: connection closed");
}

TEST(SocketLinks, WhatIsForgottenIsNotTouchedAndPeersSeeTheEnd) {
  const auto [first, second] = two_ranks();
  first->send(1, 0, message("text"));
  first->advance();
  const auto received = second->receive(0, 0, room(4));
  second->close();
  EXPECT_FALSE(second->outstanding());
  EXPECT_FALSE(second->advance());
  EXPECT_FALSE(received->done);
  EXPECT_EQ(received.use_count(), 1);
  first->receive(1, 0, room(1));
  EXPECT_EQ(error_of(*first), "1: connection closed");
}

TEST(SocketLinks, BothWaysAtOnceOnTwoThreads) {
  const auto both = two_ranks();
  const auto run = [](Links& links, int64_t peer, unsigned own, unsigned others) {
    std::vector<std::shared_ptr<Transfer>> sends;
    std::vector<std::shared_ptr<Transfer>> receives;
    for (unsigned i = 0; i < 100; ++i) {
      const int64_t size = 1 + 7919L * i;
      sends.push_back(links.send(peer, 0, message(text_of_size(size, own + i))));
      receives.push_back(links.receive(peer, 0, room(size)));
      links.advance();
    }
    for (unsigned i = 100; i-- > 0;) {
      wait(links, receives[i]);
      EXPECT_EQ(text_of(receives[i]), text_of_size(receives[i]->size, others + i));
      wait(links, sends[i]);
    }
  };
  std::thread other([&] { run(*both.second, 0, 1000, 0); });
  run(*both.first, 1, 0, 1000);
  other.join();
}

}  // namespace
}  // namespace joinsum::runtime::communication::sockets

#include "runtime/communication/shared_memory/channels.h"

#include <random>
#include <string>
#include <thread>
#include <unistd.h>

#include <gtest/gtest.h>
#include <sys/wait.h>

namespace joinsum::runtime::communication::shared_memory {
namespace {

using namespace std::chrono_literals;

const std::vector<int64_t> kCapacities{int64_t{512} << 10, 4 * kLine};

/// Files of two ranks, each with a bell and the rings that the other one writes to.
struct Files {
  std::vector<MemoryFile> files;
  Files() {
    for (int i = 0; i < 2; ++i) files.push_back(MemoryFile::create(kMappingStep + Rings::bytes(kCapacities)));
  }
  Channels channels(int64_t rank) const {
    const MemoryFile& own = files[rank];
    const MemoryFile& other = files[1 - rank];
    const int64_t bytes = Rings::bytes(kCapacities);
    std::map<int64_t, PeerMemory> peers;
    peers[1 - rank] = {Mapping(own, kMappingStep, bytes), Mapping(other, kMappingStep, bytes),
                       Mapping(other, 0, kMappingStep)};
    return {kCapacities, Mapping(own, 0, kMappingStep), std::move(peers), rank == 0};
  }
};

/// One rank, its messages, and what it received.
class Rank {
 public:
  Rank(const Files& files, int64_t rank) : channels_(files.channels(rank)), peer_(1 - rank) {}
  Channels& channels() { return channels_; }

  std::shared_ptr<Transfer> send(const std::string& text, size_t channel = 0) {
    const auto owner = std::make_shared<std::string>(text);
    return channels_.send(peer_, channel, {owner->data(), static_cast<int64_t>(owner->size()), owner});
  }
  std::shared_ptr<Transfer> receive(int64_t size, size_t channel = 0) {
    const auto owner = std::make_shared<std::string>(size, 0);
    return channels_.receive(peer_, channel, {owner->data(), size, owner});
  }
  void wait(const std::shared_ptr<Transfer>& transfer) {
    while (!transfer->done) {
      if (!channels_.advance()) channels_.wait_for_change(100ms);
    }
  }

 private:
  Channels channels_;
  int64_t peer_;
};

std::string text_of(const std::shared_ptr<Transfer>& transfer) {
  return {transfer->bytes, static_cast<size_t>(transfer->size)};
}

std::string random_text(int64_t size, uint32_t seed) {
  std::mt19937 random(seed);
  std::string text(size, 0);
  for (char& each : text) each = static_cast<char>(random());
  return text;
}

/// `size` bytes of messages of one exchange each way, by number.
std::vector<int64_t> random_sizes() {
  std::mt19937 random(3);
  std::vector<int64_t> sizes{0, 1, 63, 64, 65, 3'000'000};
  for (int i = 0; i < 60; ++i) sizes.push_back(random() % 4 == 0 ? random() % 2'000'000 : random() % 200);
  return sizes;
}

/// Both ways at once: posts everything, then waits for the last first. Returns the number of wrong messages.
int exchange_all(Rank& rank, int64_t site) {
  const auto sizes = random_sizes();
  std::vector<std::shared_ptr<Transfer>> receives;
  std::vector<std::shared_ptr<Transfer>> sends;
  for (size_t i = 0; i < sizes.size(); ++i) {
    receives.push_back(rank.receive(sizes[i], i % 2));
    sends.push_back(rank.send(random_text(sizes[i], static_cast<uint32_t>(2 * i + site)), i % 2));
  }
  int wrong = 0;
  for (size_t i = sizes.size(); i-- > 0;) {
    rank.wait(receives[i]);
    rank.wait(sends[i]);
    wrong += text_of(receives[i]) != random_text(sizes[i], static_cast<uint32_t>(2 * i + 1 - site));
  }
  return wrong + rank.channels().outstanding();
}

TEST(Channels, SmallMessagesAreGoneBeforeAnyoneWaits) {
  const Files files;
  Rank first(files, 0);
  Rank second(files, 1);
  const auto sent = first.send("hello");
  const auto also_sent = first.send("");
  EXPECT_FALSE(sent->done);
  EXPECT_TRUE(first.channels().advance());
  EXPECT_TRUE(sent->done && also_sent->done);
  EXPECT_FALSE(first.channels().outstanding());
  EXPECT_FALSE(first.channels().advance());
  const auto received = second.receive(5);
  second.wait(received);
  EXPECT_EQ(text_of(received), "hello");
}

TEST(Channels, ChannelsAreApart) {
  const Files files;
  Rank first(files, 0);
  Rank second(files, 1);
  first.send("array", 0);
  first.send("text", 1);
  first.channels().advance();
  const auto text = second.receive(4, 1);
  second.wait(text);
  EXPECT_EQ(text_of(text), "text");
}

TEST(Channels, WhatIsNotWaitedForYetGoesToItsOwnPlace) {
  const Files files;
  Rank first(files, 0);
  Rank second(files, 1);
  first.send("one");
  first.send("two");
  first.channels().advance();
  const auto one = second.receive(3);
  const auto two = second.receive(3);
  second.wait(two);
  EXPECT_EQ(text_of(two), "two");
  EXPECT_EQ(text_of(one), "one");
}

TEST(Channels, AMessageLargerThanTheRingStopsWhenItIsFullAndGoesOn) {
  const Files files;
  Rank first(files, 0);
  Rank second(files, 1);
  const std::string text = random_text(3'000'000, 1);
  const auto sent = first.send(text);
  first.channels().advance_far();
  EXPECT_FALSE(first.channels().advance());
  EXPECT_FALSE(sent->done);
  const auto received = second.receive(3'000'000);
  while (!received->done) {
    second.channels().advance();
    first.channels().advance();
  }
  EXPECT_TRUE(sent->done);
  EXPECT_EQ(text_of(received), text);
}

TEST(Channels, AMessageOfAnotherSizeIsNamed) {
  const Files files;
  Rank first(files, 0);
  Rank second(files, 1);
  first.send("four");
  first.channels().advance();
  second.receive(5);
  try {
    second.channels().advance();
    FAIL();
  } catch (const LinkError& error) {
    EXPECT_EQ(error.peer, 0);
    EXPECT_STREQ(error.what(), "it sent another message: bytes=4, expected=5");
  }
}

TEST(Channels, WhatIsForgottenIsNotTouched) {
  const Files files;
  Rank first(files, 0);
  Rank second(files, 1);
  first.send("text");
  first.channels().advance();
  const auto received = second.receive(4);
  second.channels().close();
  EXPECT_FALSE(second.channels().advance());
  EXPECT_FALSE(received->done);
  EXPECT_EQ(received.use_count(), 1);
}

TEST(Channels, BothWaysAtOnceOnTwoThreadsInAnyOrderOfWaiting) {
  const Files files;
  Rank first(files, 0);
  Rank second(files, 1);
  int wrong = -1;
  std::thread other([&] { wrong = exchange_all(second, 1); });
  EXPECT_EQ(exchange_all(first, 0), 0);
  other.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Channels, BothWaysAtOnceInTwoProcesses) {
  const Files files;
  const pid_t child = fork();
  if (child == 0) {
    Rank second(files, 1);
    _exit(exchange_all(second, 1));
  }
  Rank first(files, 0);
  EXPECT_EQ(exchange_all(first, 0), 0);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace joinsum::runtime::communication::shared_memory

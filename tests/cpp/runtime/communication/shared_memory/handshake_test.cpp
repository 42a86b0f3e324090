#include "runtime/communication/shared_memory/handshake.h"

#include <condition_variable>
#include <filesystem>
#include <mutex>

#include <gtest/gtest.h>

#include "runtime/communication/memory_group.h"

namespace joinsum::runtime::communication::shared_memory {
namespace {

/// Gathers between threads, in rounds; `change` may alter what a rank says.
class Meeting {
 public:
  using Change = std::function<void(int rank, int round, std::string& own)>;
  explicit Meeting(
      int ranks, Change change = [](int, int, std::string&) {})
      : ranks_(ranks), change_(std::move(change)), rounds_(ranks) {}

  std::vector<std::string> gather(int rank, std::string own) {
    std::unique_lock lock(mutex_);
    const int round = rounds_[rank]++;
    change_(rank, round, own);
    auto& texts = said_[round];
    texts[rank] = std::move(own);
    changed_.notify_all();
    changed_.wait(lock, [&] { return static_cast<int>(texts.size()) == ranks_; });
    std::vector<std::string> all;
    for (const auto& [each, text] : texts) all.push_back(text);
    return all;
  }

 private:
  int ranks_;
  Change change_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int> rounds_;
  std::map<int, std::map<int, std::string>> said_;
};

/// What each rank reaches ("01" is ranks 0 and 1), and the number of pairs.
std::vector<std::string> reached(Meeting& meeting, int ranks, const std::function<bool(int)>& enabled) {
  std::vector<std::string> out(ranks);
  const auto errors = testing::on_ranks(ranks, [&](int rank) {
    const Connections found =
        connect(rank, ranks, enabled(rank), [&](const std::string& own) { return meeting.gather(rank, own); });
    for (int peer = 0; peer < ranks; ++peer) {
      if (found.channels != nullptr && found.channels->reaches(peer)) out[rank] += std::to_string(peer);
    }
    out[rank] += "; " + std::to_string(found.pairs);
    meeting.gather(rank, "");  // memory stays until all have looked
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
  return out;
}

const auto everyone = [](int) { return true; };
using Lines = std::vector<std::string>;

int open_files() {
  const std::filesystem::directory_iterator files("/proc/self/fd");
  return static_cast<int>(std::distance(begin(files), end(files)));
}

TEST(Handshake, RanksOfOneHostShareMemory) {
  Meeting meeting(3);
  const int before = open_files();
  EXPECT_EQ(reached(meeting, 3, everyone), (Lines{"12; 3", "02; 3", "01; 3"}));
  EXPECT_EQ(open_files(), before);
}

TEST(Handshake, ARankThatDoesNotWantToSharesNothing) {
  Meeting meeting(3);
  EXPECT_EQ(reached(meeting, 3, [](int rank) { return rank != 1; }), (Lines{"2; 1", "; 1", "0; 1"}));
}

TEST(Handshake, OneRankHasNobody) {
  Meeting meeting(1);
  EXPECT_EQ(reached(meeting, 1, everyone), (Lines{"; 0"}));
}

/// The host's name stands first in what a rank offers, the number of its network behind it.
TEST(Handshake, RanksOfOtherHostsOrNetworksShareNothing) {
  for (const int position : {0, 40}) {
    Meeting meeting(3, [&](int rank, int round, std::string& own) {
      if (rank == 2 && round == 0) own[position] ^= 1;
    });
    EXPECT_EQ(reached(meeting, 3, everyone), (Lines{"1; 1", "0; 1", "; 1"}));
  }
}

TEST(Handshake, APairWhoseMemoryOneCannotMapSharesNothing) {
  Meeting meeting(3, [](int rank, int round, std::string& own) {
    if (rank == 0 && round == 1) own[2] = 0;  // says that it could not map the memory of rank 2
  });
  EXPECT_EQ(reached(meeting, 3, everyone), (Lines{"1; 2", "02; 2", "1; 2"}));
}

/// As where process numbers are those of another namespace.
TEST(Handshake, AnotherFileUnderTheNumberIsNotTaken) {
  Meeting meeting(2, [](int rank, int round, std::string& own) {
    if (rank == 1 && round == 0) own.back() ^= 1;  // the token
  });
  EXPECT_EQ(reached(meeting, 2, everyone), (Lines{"; 0", "; 0"}));
}

}  // namespace
}  // namespace joinsum::runtime::communication::shared_memory

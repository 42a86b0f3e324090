#include "runtime/communication/sockets/connect.h"

#include <condition_variable>
#include <cstring>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace joinsum::runtime::communication::sockets {
namespace {

using namespace std::chrono_literals;

/// Gathers for ranks that are threads.
class Rendezvous {
 public:
  explicit Rendezvous(size_t ranks) : texts_(ranks) {}

  std::vector<std::string> gather(size_t rank, const std::string& own) {
    std::unique_lock lock(mutex_);
    texts_[rank] = own;
    const size_t round = round_;
    if (++present_ == texts_.size()) {
      all_ = texts_;
      present_ = 0;
      ++round_;
      met_.notify_all();
    }
    met_.wait(lock, [&] { return round_ > round; });
    return all_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable met_;
  std::vector<std::string> texts_;
  std::vector<std::string> all_;
  size_t present_ = 0;
  size_t round_ = 0;
};

using Seen = std::function<void(int64_t rank, const std::vector<std::string>& all)>;

/// What each rank gets; `seen` is called with all that is gathered.
std::vector<Connections> connect_all(const std::vector<bool>& enabled, const std::vector<std::set<int64_t>>& reached,
                                     const Seen& seen = {}) {
  const auto ranks = static_cast<int64_t>(enabled.size());
  Rendezvous meeting(enabled.size());
  std::vector<Connections> out(enabled.size());
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      out[rank] = connect(rank, ranks, enabled[rank], reached[rank], [&](const std::string& own) {
        const auto all = meeting.gather(rank, own);
        if (seen) seen(rank, all);
        return all;
      });
    });
  }
  for (std::thread& thread : threads) thread.join();
  return out;
}

bool reaches(const Connections& of, int64_t peer) { return of.links != nullptr && of.links->reaches(peer); }

/// Whether a number that `from` sends arrives at `to`.
bool carries(const std::vector<Connections>& all, int64_t from, int64_t to, size_t channel) {
  int64_t sent = 7 + from;
  int64_t got = 0;
  all[from].links->send(to, channel, {reinterpret_cast<char*>(&sent), sizeof(sent), nullptr});
  const auto transfer = all[to].links->receive(from, channel, {reinterpret_cast<char*>(&got), sizeof(got), nullptr});
  all[from].links->advance_far();
  for (int i = 0; i < 100 && !transfer->done; ++i) {
    if (!all[to].links->advance()) all[to].links->wait_for_change(100ms);
  }
  return got == sent;
}

TEST(Connect, EachPairHasASocketForEachChannel) {
  const auto all = connect_all({true, true, true}, {{}, {}, {}});
  for (int64_t from = 0; from < 3; ++from) {
    EXPECT_EQ(all[from].pairs, 3);
    EXPECT_FALSE(reaches(all[from], from));
    for (int64_t to = 0; to < 3; ++to) {
      if (from == to) continue;
      ASSERT_TRUE(reaches(all[from], to));
      EXPECT_TRUE(carries(all, from, to, 0));
      EXPECT_TRUE(carries(all, from, to, 1));
    }
  }
}

TEST(Connect, RanksThatAreReachedOrNotEnabledHaveNone) {
  const auto all = connect_all({true, true, false, true}, {{1}, {0}, {}, {}});
  for (const Connections& each : all) EXPECT_EQ(each.pairs, 2);
  EXPECT_FALSE(reaches(all[0], 1));
  EXPECT_FALSE(reaches(all[0], 2));
  EXPECT_EQ(all[2].links, nullptr);
  EXPECT_TRUE(reaches(all[3], 0) && reaches(all[3], 1));
  EXPECT_TRUE(carries(all, 0, 3, 0));
}

TEST(Connect, NoneWhereAllAreReachedOrAlone) {
  for (const Connections& each : connect_all({true, true}, {{1}, {0}})) {
    EXPECT_EQ(each.links, nullptr);
    EXPECT_EQ(each.pairs, 0);
  }
  EXPECT_EQ(connect_all({true}, {{}}).front().links, nullptr);
}

TEST(Connect, AnInterfaceThatIsNotThereLeavesPairsWithoutSockets) {
  setenv("GLOO_SOCKET_IFNAME", "none such", 1);
  const auto all = connect_all({true, true}, {{}, {}});
  unsetenv("GLOO_SOCKET_IFNAME");
  for (const Connections& each : all) EXPECT_EQ(each.pairs, 0);
}

/// Offers start with the address that a rank listens on.
TEST(Connect, StrangersAreNotTakenForRanks) {
  std::vector<int> strangers;
  const auto all = connect_all({true, true}, {{}, {}}, [&](int64_t rank, const std::vector<std::string>& offers) {
    if (rank != 0 || offers.front().size() < sizeof(sockaddr_storage) || !strangers.empty()) return;
    for (const std::string& sent : {std::string(32, 'x'), std::string("short"), std::string()}) {
      sockaddr_storage address{};
      std::memcpy(&address, offers.front().data(), sizeof(address));
      const int stranger = socket(address.ss_family, SOCK_STREAM, 0);
      const socklen_t length = address.ss_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
      EXPECT_EQ(::connect(stranger, reinterpret_cast<sockaddr*>(&address), length), 0);
      EXPECT_EQ(send(stranger, sent.data(), sent.size(), MSG_NOSIGNAL), static_cast<ssize_t>(sent.size()));
      strangers.push_back(stranger);
    }
  });
  EXPECT_EQ(all[0].pairs, 1);
  EXPECT_TRUE(carries(all, 1, 0, 0));
  EXPECT_TRUE(carries(all, 0, 1, 1));
  for (const int stranger : strangers) close(stranger);
}

}  // namespace
}  // namespace joinsum::runtime::communication::sockets

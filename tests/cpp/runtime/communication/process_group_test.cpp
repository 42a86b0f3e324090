#include <gtest/gtest.h>

#include "base/check.h"
#include "runtime/communication/memory_group.h"
#include "runtime/communication/transport.h"

namespace joinsum::runtime::communication {
namespace {

using testing::expect_no_errors;
using testing::on_group;

TEST(ProcessGroup, HasOneSitePerRank) {
  expect_no_errors(on_group(2, [](Transport& transport, int rank) {
    EXPECT_EQ(transport.name(), "gloo");
    EXPECT_EQ(transport.sites(), 2);
    EXPECT_EQ(transport.local_sites(), std::vector<int64_t>{rank});
    transport.agree("end", "");
  }));
}

TEST(ProcessGroup, DeliversSmallAndLargeMessagesOfOnePairInTheirPlaces) {
  // Small messages travel together, large ones alone; the middle one has no elements.
  const std::vector<int64_t> sizes{3, 100'000, 0, 5, 20'000};
  const std::vector<std::pair<std::string, bool>> ways{{"gloo", true}, {"gloo", false}, {"another", true}};
  for (const auto& [backend, share_memory] : ways) {
    expect_no_errors(on_group(
        2,
        [&](Transport& transport, int rank) {
          std::vector<Message> messages;
          for (const int64_t size : sizes) messages.push_back({0, 1, 4 * size});
          messages.push_back({1, 0, 8});
          const auto received =
              transport
                  .start("move", messages, at::kInt,
                         [&](size_t i) { return at::full({messages[i].bytes / 4}, static_cast<int>(i), at::kInt); })
                  ->wait();
          for (size_t i = 0; i < messages.size(); ++i) {
            ASSERT_EQ(received[i].defined(), messages[i].to == rank) << i;
            if (!received[i].defined()) continue;
            EXPECT_EQ(received[i].nbytes(), messages[i].bytes);
            EXPECT_TRUE((received[i] == static_cast<int>(i)).all().item<bool>());
          }
          const int64_t there = 4 * (3 + 100'000 + 5 + 20'000);
          EXPECT_EQ(transport.counters().sent, rank == 0 ? there : 8);
          EXPECT_EQ(transport.counters().received, rank == 0 ? 8 : there);
          transport.agree("end", "");
        },
        backend, share_memory));
  }
}

TEST(ProcessGroup, SharesMemoryWhereLostPeersAreNoticed) {
  const auto sharing = [](const std::string& backend, bool share_memory) {
    std::atomic<int> all = 0;
    expect_no_errors(on_group(
        3, [&](Transport& transport, int) { all += transport.shared_memory() == SharedMemory::kAll ? 1 : 0; }, backend,
        share_memory));
    return all.load();
  };
  EXPECT_EQ(sharing("gloo", true), 3);
  EXPECT_EQ(sharing("gloo", false), 0);
  EXPECT_EQ(sharing("another", true), 0);
}

/// Elements of a message that is larger than the rings of shared memory.
constexpr int64_t kLarge = 5'000'000;

at::Tensor numbers(int64_t first) { return at::arange(first, first + kLarge, at::kInt); }

TEST(ProcessGroup, LargeExchangesCrossAndMayBeWaitedForInAnotherOrder) {
  for (const bool share_memory : {true, false}) {
    expect_no_errors(on_group(
        2,
        [](Transport& transport, int rank) {
          const std::vector<Message> messages{{0, 1, 4 * kLarge}, {1, 0, 4 * kLarge}};
          std::vector<std::unique_ptr<ExchangeHandle>> handles;
          for (int64_t i = 0; i < 3; ++i) {
            handles.push_back(
                transport.start("move", messages, at::kInt, [&](size_t) { return numbers(100 * i + rank); }));
          }
          for (const int64_t i : rank == 0 ? std::vector<int64_t>{2, 0, 1} : std::vector<int64_t>{1, 2, 0}) {
            EXPECT_TRUE(at::equal(handles[i]->wait()[1 - rank], numbers(100 * i + 1 - rank))) << i;
          }
          transport.agree("end", "");
        },
        "gloo", share_memory));
  }
}

TEST(ProcessGroup, ProgressMovesWhatNobodyWaitsForYet) {
  std::atomic<bool> received = false;
  expect_no_errors(on_group(2, [&](Transport& transport, int rank) {
    const auto handle = transport.start("move", {{0, 1, 4 * kLarge}}, at::kInt, [](size_t) { return numbers(0); });
    while (rank == 0 && !received) transport.progress();
    const auto arrays = handle->wait();
    received = true;
    EXPECT_TRUE(rank == 0 || at::equal(arrays[0], numbers(0)));
    transport.agree("end", "");
  }));
}

TEST(ProcessGroup, NamesTheFirstLineInWhichSitesDiffer) {
  const auto errors =
      on_group(3, [](Transport& transport, int rank) { transport.agree("run", rank == 2 ? "a\nb\nd" : "a\nb\nc"); });
  for (const std::string& error : errors) EXPECT_EQ(error, "run: sites differ: line=3, site 0: c, site 2: d");
}

TEST(ProcessGroup, NamesDifferentCalls) {
  const auto errors =
      on_group(2, [](Transport& transport, int rank) { transport.agree(rank == 0 ? "run" : "plan", ""); });
  for (const std::string& error : errors) {
    EXPECT_EQ(error,
              "agree: sites make different calls: site 0: run, site 1: plan; every rank makes all calls, in one order");
  }
}

TEST(ProcessGroup, GathersTextsOfDifferentLengths) {
  expect_no_errors(on_group(3, [](Transport& transport, int rank) {
    const auto texts = transport.gather_texts("rates", std::string(rank, 'x'));
    EXPECT_EQ(texts, (std::vector<std::string>{"", "x", "xx"}));
    EXPECT_EQ(transport.counters().sent, 0);
    transport.agree("end", "");
  }));
}

TEST(ProcessGroup, TakesTheMaximumOfTheSitesValues) {
  expect_no_errors(on_group(2, [](Transport& transport, int rank) {
    EXPECT_EQ(transport.all_reduce_max({1.0 * rank, -1.0 * rank}), (std::vector<double>{1.0, 0.0}));
    transport.agree("end", "");
  }));
  const auto errors =
      on_group(2, [](Transport& transport, int rank) { transport.all_reduce_max(std::vector<double>(1 + rank)); });
  for (const std::string& error : errors) {
    EXPECT_EQ(error, "all_reduce_max: sites give lists of different lengths: site 0: 1, site 1: 2");
  }
}

TEST(ProcessGroup, ARankThatEndsFailsTheCollectiveOfTheOthersAndAllLaterCalls) {
  const SubGrids everyone = SubGrids::all(3);
  const auto errors = on_group(3, [&](Transport& transport, int rank) {
    const at::Tensor x = at::ones({4});
    transport.all_reduce("sum", everyone, "add", {x});
    transport.agree("again", "");
    if (rank == 1) return;
    std::string first;
    try {
      transport.all_gather("gather", everyone, {x});
    } catch (const TransportError& error) {
      first = error.what();
    }
    EXPECT_EQ(first, "gather: lost site 1: connection closed");
    transport.agree("later", "");
  });
  EXPECT_EQ(errors[0], "gather: lost site 1: connection closed");
  EXPECT_EQ(errors[1], "");
  EXPECT_EQ(errors[2], errors[0]);
}

TEST(ProcessGroup, ARankThatReportsAFailureEndsTheWaitOfTheOthers) {
  const SubGrids everyone = SubGrids::all(2);
  std::mutex mutex;
  std::condition_variable changed;
  bool failed = false;
  const auto errors = on_group(2, [&](Transport& transport, int rank) {
    transport.agree("run", "");
    if (rank == 0) {
      transport.report_failure(std::runtime_error("out of memory"));
      std::unique_lock lock(mutex);  // the connections stay open
      changed.wait(lock, [&] { return failed; });
      return;
    }
    try {
      transport.all_gather("gather", everyone, {at::ones({4})});
    } catch (...) {
      const std::lock_guard lock(mutex);
      failed = true;
      changed.notify_all();
      throw;
    }
  });
  EXPECT_EQ(errors[1], "gather: lost site 0: it failed: out of memory");
}

TEST(ProcessGroup, AnExchangeThatNobodyWaitsForFailsTheGroup) {
  const auto errors = on_group(2, [](Transport& transport, int rank) {
    const auto payload = [](size_t) { return at::ones({1}); };
    if (rank == 0) {
      transport.start("dropped", {{0, 1, 4}, {1, 0, 4}}, at::kFloat, payload);
      transport.agree("later", "");
    } else {
      transport.agree("run", "");
    }
  });
  EXPECT_EQ(errors[0], "dropped: lost site 0: interrupted");
  EXPECT_NE(errors[1].find("lost site 0"), std::string::npos) << errors[1];
}

TEST(ProcessGroup, RefusesUnknownNamesAndTimeouts) {
  EXPECT_THROW(make_process_group("no such group", 10, Collectives::kTable), PlanError);
  EXPECT_THROW(make_process_group("no such group", 0, Collectives::kTable), PlanError);
}

}  // namespace
}  // namespace joinsum::runtime::communication

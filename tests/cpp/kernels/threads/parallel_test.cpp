#include "kernels/threads/parallel.h"

#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

namespace joinsum::kernels::threads {
namespace {

TEST(Ranges, RunOnTorchsThreads) {
  const int before = at::get_num_threads();
  at::set_num_threads(2);
  std::mutex mutex;
  std::set<std::thread::id> used;
  std::vector<int> visits(8, 0);
  for_each_range(8, [&](int64_t begin, int64_t end) {
    const std::lock_guard lock(mutex);
    used.insert(std::this_thread::get_id());
    for (int64_t i = begin; i < end; ++i) ++visits[static_cast<size_t>(i)];
  });
  at::set_num_threads(before);
  EXPECT_EQ(visits, std::vector<int>(8, 1));
  EXPECT_EQ(used.size(), 2);
}

}  // namespace
}  // namespace joinsum::kernels::threads

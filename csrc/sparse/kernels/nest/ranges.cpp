#include "sparse/kernels/nest/ranges.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>

namespace joinsum::sparse::kernels::nest {

int64_t EntriesBelow::before(int64_t coordinate) const {
  int64_t total = coordinate;
  for (const std::vector<LevelView>& levels : operands_) {
    int64_t entry = 0;  // the first one that is not before the coordinate
    for (size_t l = 0; l < levels.size(); ++l) {
      const LevelView& level = levels[l];
      if (!level.lists()) {
        entry = l == 0 ? coordinate : entry * level.size;
      } else if (l == 0) {
        entry =
            std::lower_bound(level.coordinates, level.coordinates + level.offsets[1], coordinate) - level.coordinates;
      } else {
        entry = level.begin(entry);
      }
    }
    total += entry;
  }
  return total;
}

std::vector<int64_t> EntriesBelow::cut(int64_t extent, int64_t count) const {
  std::vector<int64_t> cuts{0};
  const int64_t all = before(extent);
  for (int64_t part = 1; part < count; ++part) {
    const auto wanted =
        static_cast<int64_t>(static_cast<double>(all) * static_cast<double>(part) / static_cast<double>(count));
    int64_t low = cuts.back();
    int64_t high = extent;
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      if (before(middle) < wanted) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    if (low > cuts.back() && low < extent) cuts.push_back(low);
  }
  if (extent > 0) cuts.push_back(extent);
  return cuts;
}

void run_tasks(int threads, int64_t tasks, const std::function<void(int, int64_t)>& task) {
  std::atomic<int64_t> next{0};
  std::mutex failing;
  int64_t failed = tasks;
  std::exception_ptr failure;
  const auto work = [&](int worker) {
    for (int64_t mine = next++; mine < tasks; mine = next++) {
      try {
        task(worker, mine);
      } catch (...) {
        const std::lock_guard<std::mutex> lock(failing);
        if (mine < failed) {
          failed = mine;
          failure = std::current_exception();
        }
      }
    }
  };
  std::vector<std::jthread> others;
  for (int worker = 1; worker < threads && worker < tasks; ++worker) others.emplace_back(work, worker);
  work(0);
  others.clear();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace joinsum::sparse::kernels::nest
